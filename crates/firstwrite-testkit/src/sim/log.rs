//! The true course of a history, seen from outside, and the promises checked against it.

use firstwrite_core::{Body, Fence, Outcome, Policy, Record, State, StateKind, Timestamp};

use super::cast::{RECORDS, Role, Way};
use super::{Event, Events, Trace};

/// The true course of a history.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) events: Events,
    pub(super) violation: Option<String>,
    pub(super) lines: Vec<String>,
    pub(super) ways: [Way; RECORDS],
    /// Nonces of the attempts whose process lives.
    pub(super) live: Vec<u64>,
    trace: Trace,
    keys: [KeyLog; RECORDS],
}

/// The true events under one key.
///
/// An *era* ends when the key is rightly free again: its outcome's retention has ended, or an operator proved
/// that nothing happened. Within an era there is one effect and one answer.
#[derive(Debug, Default)]
struct KeyLog {
    era: usize,
    /// The answer that was kept in each era.
    kept: Vec<(usize, Outcome)>,
    /// In which era each attempt was granted.
    fences: Vec<(Fence, usize)>,
    /// The remote or committed effects: era, variant, and the answer that went with it.
    effects: Vec<(usize, u8, Outcome)>,
    /// Fences of moves that lost an acknowledgement.
    lost: Vec<Fence>,
    stands: Option<Record>,
}

impl Log {
    pub(super) fn new(ways: [Way; RECORDS], trace: Trace) -> Self {
        Self {
            events: Events::default(),
            violation: None,
            lines: Vec::new(),
            ways,
            live: Vec::new(),
            trace,
            keys: Default::default(),
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        self.events.note(event);
    }

    pub(super) fn line(&mut self, line: impl FnOnce() -> String) {
        if self.trace == Trace::On {
            self.lines.push(line());
        }
    }

    pub(super) fn broken(&mut self, promise: String) {
        self.line(|| format!("BROKEN: {promise}"));
        self.violation.get_or_insert(promise);
    }

    pub(super) fn era(&self, record: usize) -> usize {
        self.keys[record].era
    }

    /// Notices what a step of the store did to a record.
    pub(super) fn observe(&mut self, record: usize, now: Timestamp, stands: Option<Record>) {
        let key = &mut self.keys[record];
        // Under a note of a release the key is free.
        let stands = stands.filter(|record| !is_note(record));
        if key.stands == stands {
            return;
        }
        let before = key.stands.clone();
        let mut broken = None;
        let mut noted = None;
        if let Some(Record { state: State::Completed { retained_until, .. }, .. }) = &before {
            if now < *retained_until {
                broken = Some(format!("the outcome of record {record} changed within retention"));
            } else {
                key.era += 1;
                noted = stands.is_some().then_some(Event::ExpiredTakenOver);
            }
        }
        if let Some(next) = &stands {
            if key.fences.iter().all(|(fence, _)| *fence != next.fence) {
                key.fences.push((next.fence, key.era));
            }
            if let (Some(before), None) = (&before, noted)
                && before.fence != next.fence
            {
                noted = Some(Event::TakenOver);
            }
            match &next.state {
                State::Completed { outcome, retained_until, .. } => {
                    if *retained_until != now.plus(Policy::RETENTION_DEFAULT) {
                        broken = Some(format!("record {record} is not kept for its retention"));
                    }
                    if key.kept.iter().any(|(era, _)| *era == key.era) && broken.is_none() {
                        broken = Some(format!("record {record} was completed twice in one era"));
                    }
                    key.kept.push((key.era, outcome.clone()));
                    if before.is_some_and(|before| before.state.kind() == StateKind::Uncertain) {
                        noted = Some(Event::CompletedLate);
                    }
                }
                State::Uncertain { .. } => noted = Some(Event::BecameUncertain),
                State::Reserved(_) => {}
            }
        }
        key.stands = stands;
        if let Some(event) = noted {
            self.note(event);
        }
        if let Some(promise) = broken {
            self.broken(promise);
        }
    }

    /// Records a proof that nothing happened: the key is rightly free.
    ///
    /// The proof is about the attempt whose record is freed; it proves nothing about another one.
    pub(super) fn absence_proven(&mut self, record: usize, fence: Fence) {
        if self.truth(record, fence).is_some() {
            self.broken(format!("record {record} was freed as not happened, but it happened"));
        }
        self.keys[record].era += 1;
        self.note(Event::SettledNotHappened);
    }

    /// In which era the attempt with this fence was granted.
    pub(super) fn era_of(&self, record: usize, fence: Fence) -> usize {
        let key = &self.keys[record];
        key.fences.iter().find(|(known, _)| *known == fence).map_or(key.era, |(_, era)| *era)
    }

    /// A remote effect happens; returns what the upstream answers.
    pub(super) fn effect(&mut self, role: Role, era: usize, answer: Outcome) -> Outcome {
        let resends = self.ways[role.record] == Way::Resend;
        let effects = &mut self.keys[role.record].effects;
        // An upstream that honours the key answers a repetition with its first answer.
        if resends
            && let Some((.., first)) =
                effects.iter().find(|(at, variant, _)| (*at, *variant) == (era, role.variant))
        {
            return first.clone();
        }
        effects.push((era, role.variant, answer.clone()));
        let repeated = effects.iter().filter(|(at, ..)| *at == era).count() > 1;
        self.line(|| format!("effect for {role:?} in era {era}"));
        if repeated && !resends {
            self.broken(format!("two effects under record {} in one era", role.record));
        }
        answer
    }

    /// Returns the answer of the effect in the era of the attempt with this fence, if there was one.
    pub(super) fn truth(&self, record: usize, fence: Fence) -> Option<Outcome> {
        let era = self.era_of(record, fence);
        let effects = &self.keys[record].effects;
        effects.iter().find(|(at, ..)| *at == era).map(|(.., answer)| answer.clone())
    }

    /// A client gets an answer to a request that it sent in era `since`.
    pub(super) fn answered(&mut self, role: Role, since: usize, answer: &Outcome) {
        let key = &self.keys[role.record];
        let is_kept = key.kept.iter().any(|(era, kept)| *era >= since && kept == answer);
        let body = match &answer.body {
            Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::Tombstone | Body::Sealed(_) | Body::Released => String::new(),
        };
        self.line(|| format!("{role:?} is answered: {body}"));
        if !body.starts_with(&role.signature()) {
            self.broken(format!("{role:?} got somebody else's answer: {body}"));
        } else if !is_kept {
            self.broken(format!("{role:?} got an answer that is not the kept one: {body}"));
        }
    }

    pub(super) fn lost(&mut self, record: usize, fence: Fence) {
        self.keys[record].lost.push(fence);
    }

    /// A move ended well; counts it if one of its acknowledgements was lost.
    pub(super) fn ended_well(&mut self, record: usize, fence: Fence) {
        if self.keys[record].lost.contains(&fence) {
            self.note(Event::LostRecovered);
        }
    }
}

fn is_note(record: &Record) -> bool {
    matches!(&record.state, State::Completed { outcome, .. } if outcome.is_release_note())
}
