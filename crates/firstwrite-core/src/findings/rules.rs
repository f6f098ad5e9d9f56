//! The rules about findings: what becomes of one that is seen again, assigned, closed or forgotten.

use super::{
    Closed, Closing, FINDINGS_KEPT_FOR, Finding, FindingNumber, NewFinding, Noted, Owner, Run,
};
use crate::{AuditEntry, Audited, Timestamp};

/// A finding and the changes that people made to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) finding: Finding,
    /// The oldest first.
    pub(super) audits: Vec<Audited>,
    /// Older ones that are not kept any more.
    pub(super) audits_dropped: u32,
}

/// The effect of a sighting, once the finding's number is known.
pub(super) type Effect = fn(FindingNumber) -> Noted;

/// A finding is assigned a few times, and closed once or twice.
const AUDITS_MAX: usize = 100;

/// Leaves room for the rest of the finding in a document, even if every byte is escaped.
const AUDIT_BYTES_MAX: usize = 24 * 1024;

impl Entry {
    /// Makes of `known` the entry after a run of `source` saw `found` at `seen_at`.
    pub(super) fn seen(
        known: Option<Self>,
        source: &str,
        found: &NewFinding,
        seen_at: Timestamp,
    ) -> (Self, Effect) {
        let Some(mut entry) = known else { return (Self::new(source, found, seen_at), Noted::New) };
        let effect = entry.effect_of(found, seen_at);
        let finding = &mut entry.finding;
        finding.last_seen = finding.last_seen.max(seen_at);
        if effect(finding.number) == Noted::Closed(finding.number) {
            // A closed finding says what was closed.
            return (entry, effect);
        }
        finding.reopened_count += u32::from(finding.closed.take().is_some());
        finding.found = found.clone();
        (entry, effect)
    }

    fn new(source: &str, found: &NewFinding, seen_at: Timestamp) -> Self {
        let finding = Finding {
            // The store gives it.
            number: FindingNumber(0),
            source: source.to_owned(),
            found: found.clone(),
            first_seen: seen_at,
            last_seen: seen_at,
            reopened_count: 0,
            owner: None,
            closed: None,
        };
        Self { finding, audits: Vec::new(), audits_dropped: 0 }
    }

    fn effect_of(&self, found: &NewFinding, seen_at: Timestamp) -> Effect {
        match &self.finding.closed {
            None => Noted::Known,
            // The closing covers sightings before it.
            Some(closed) if seen_at <= closed.at => Noted::Closed,
            Some(Closed { closing: Closing::Accepted(_), .. })
                if found.detail == self.finding.found.detail =>
            {
                Noted::Closed
            }
            Some(_) => Noted::Reopened,
        }
    }

    /// Gives the finding to `owner`, or to no owner.
    pub(super) fn assign(&mut self, owner: Option<&Owner>, by: &AuditEntry, now: Timestamp) {
        self.finding.owner = owner.map(|owner| owner.as_str().to_owned());
        self.audit(by, now);
    }

    /// Closes the finding if it is open, and says whether it was.
    pub(super) fn close(&mut self, closing: &Closing, by: &AuditEntry, now: Timestamp) -> bool {
        if self.finding.closed.is_some() {
            return false;
        }
        let closed = Closed { at: now, by: by.actor.clone(), closing: closing.clone() };
        self.finding.closed = Some(closed);
        self.audit(by, now);
        true
    }

    /// Adds an audit entry, and drops the oldest ones beyond the limits.
    fn audit(&mut self, by: &AuditEntry, now: Timestamp) {
        self.audits.push(Audited { at: now, entry: by.clone() });
        let bytes_of = |audited: &Audited| {
            let AuditEntry { actor, action, reason } = &audited.entry;
            actor.len() + action.len() + reason.len()
        };
        let mut bytes: usize = self.audits.iter().map(bytes_of).sum();
        while self.audits.len() > 1 && (self.audits.len() > AUDITS_MAX || bytes > AUDIT_BYTES_MAX) {
            bytes -= bytes_of(&self.audits.remove(0));
            self.audits_dropped = self.audits_dropped.saturating_add(1);
        }
    }

    /// Returns when the finding may be forgotten: never while it is open.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.finding.closed.as_ref().map(|closed| closed.at.plus(FINDINGS_KEPT_FOR))
    }
}

impl Run {
    /// Says whether this run, which looked from `from` on, goes on where `last` ended: it left no gap, and
    /// did not look at an older time.
    pub(super) fn goes_on(&self, from: Timestamp, last: &Self) -> bool {
        from <= last.again_from.max(Timestamp::EPOCH) && last.until <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FindingKind;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn found(detail: &str) -> NewFinding {
        NewFinding {
            kind: FindingKind::Duplicate,
            subject: "message 1".to_owned(),
            detail: detail.to_owned(),
            record: None,
            message: None,
            provider_id: None,
        }
    }

    fn by(reason: &str) -> AuditEntry {
        AuditEntry { actor: "me".to_owned(), action: "a".to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn a_sighting_opens_what_its_closing_does_not_cover() {
        let open = Entry::seen(None, "s", &found("two"), at(1)).0;
        let [fixed, accepted] = ["fixed", "accepted"].map(|word| {
            let mut entry = open.clone();
            let closing = Closing::from_stored(word, "why".to_owned()).unwrap();
            assert!(entry.close(&closing, &by("why"), at(10)));
            assert!(!entry.close(&closing, &by("why"), at(11)), "a finding is closed once");
            entry
        });
        for (known, detail, seen_at, wanted) in [
            (None, "two", 20, Noted::New as Effect),
            (Some(&open), "two", 20, Noted::Known),
            (Some(&open), "three", 20, Noted::Known),
            (Some(&fixed), "two", 10, Noted::Closed),
            (Some(&fixed), "two", 11, Noted::Reopened),
            (Some(&accepted), "two", 11, Noted::Closed),
            (Some(&accepted), "three", 10, Noted::Closed),
            (Some(&accepted), "three", 11, Noted::Reopened),
        ] {
            let (entry, effect) = Entry::seen(known.cloned(), "s", &found(detail), at(seen_at));
            let number = FindingNumber(7);
            assert_eq!(effect(number), wanted(number), "{known:?} seen at {seen_at}: {detail}");
            let stays_closed = wanted(number) == Noted::Closed(number);
            let Finding { found, closed, reopened_count, last_seen, .. } = entry.finding;
            assert_eq!(closed.is_some(), stays_closed);
            assert_eq!(found.detail == detail, !stays_closed || detail == "two");
            let is_reopened = wanted(number) == Noted::Reopened(number);
            assert_eq!((reopened_count, last_seen), (is_reopened.into(), at(seen_at)));
        }
    }

    #[test]
    fn a_late_run_does_not_turn_the_last_sighting_back() {
        let entry = Entry::seen(None, "s", &found("two"), at(9)).0;
        assert_eq!(Entry::seen(Some(entry), "s", &found("two"), at(3)).0.finding.last_seen, at(9));
    }

    #[test]
    fn the_latest_audit_entries_are_kept_and_the_others_counted() {
        let mut entry = Entry::seen(None, "s", &found("two"), at(1)).0;
        (0..150).for_each(|time| entry.assign(None, &by("short"), at(time)));
        assert_eq!((entry.audits.len(), entry.audits_dropped), (100, 50));
        assert_eq!(entry.audits.last().map(|audited| audited.at), Some(at(149)));
        (0..20).for_each(|time| entry.assign(None, &by(&"x".repeat(2000)), at(time)));
        assert_eq!((entry.audits.len(), entry.audits_dropped), (12, 158));
    }

    #[test]
    fn a_run_goes_on_without_a_gap_and_not_backwards() {
        let run =
            |until, again_from| Run { at: at(9), until: at(until), again_from: at(again_from) };
        let last = run(20, 15);
        for (from, until, goes_on) in
            [(15, 20, true), (16, 30, false), (0, 19, false), (0, 30, true)]
        {
            assert_eq!(run(until, 15).goes_on(at(from), &last), goes_on, "{from} to {until}");
        }
        assert!(
            run(1, 0).goes_on(Timestamp::EPOCH, &run(1, -5)),
            "nothing is before the beginning"
        );
    }
}
