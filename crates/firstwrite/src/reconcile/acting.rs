//! Acts on a comparison: proofs settle, contradictions are noted.

use firstwrite_core::findings::Findings;
use firstwrite_core::outbox::{
    ClaimStatus, MessageNumber, Outbox, Receipt, Resolution, protocol as messages,
};
use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::reconcile::{Action, MatchedBy, Ours, Subject, Theirs, Verdict, finding};
use firstwrite_core::{AuditEntry, Record, Store, StoreError, StoreErrorKind, Timestamp};

use super::books::{Books, Handle};
use super::report::Report;
use super::settings::Settings;
use super::{Flaw, Progress};

/// Settles what is proven, counting it in `report`, and gathers what a person must look at.
pub(super) async fn settle(
    store: &dyn Store,
    settings: &Settings,
    compared: (&Books, &[Theirs], &[Verdict]),
    report: &mut Report,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), StoreError> {
    let (books, theirs, verdicts) = compared;
    let of = verdicts.iter().filter(|verdict| verdict.action != Action::Nothing).count();
    let is_find = |verdict: &&Verdict| matches!(verdict.action, Action::Find(_));
    if verdicts.iter().filter(is_find).count() > settings.limits.findings_max {
        let detail = "more than are noted in a run; settle what is behind them";
        report.flaws.push(Flaw::new("findings", detail));
        report.is_complete = false;
    }
    let believes_absences = believes_absences(store, books, verdicts, report).await?;
    if !believes_absences {
        // They are expected to be sent again, or freed, by a later run.
        let is_absent = |verdict: &&Verdict| verdict.action == Action::NotArrived;
        let unproven = verdicts.iter().filter(is_absent).count();
        report.classes.absent -= unproven;
        report.classes.unproven += unproven;
    }
    let mut done = 0;
    for verdict in verdicts {
        let proof = match verdict.action {
            Action::Nothing => continue,
            Action::Find(_) => {
                if report.found.len() < settings.limits.findings_max {
                    report.found.extend(finding(verdict, &books.ours, theirs));
                }
                None
            }
            Action::Arrived => {
                verdict.theirs.first().and_then(|place| theirs.get(*place)).map(Some)
            }
            Action::NotArrived => believes_absences.then_some(None),
        };
        if let (Some(their), Some(index)) = (proof, verdict.ours) {
            if settings.dry_run {
                let provider_id = their.map(|their| their.provider_id.as_str());
                report.preview.add(books.ours[index].subject, provider_id);
                continue;
            }
            let proof = Proof { their, by: verdict.matched_by, settings };
            proof.settle(store, &books.ours[index], &books.handles[index], report).await?;
        }
        done += 1;
        progress(Progress::Acting { done, of });
    }
    Ok(())
}

/// Returns true if an absence can be believed: the run is complete so far, and no acknowledged history is missing.
/// What is missing may have sent the absent entry a moment ago, and then the run is not complete.
async fn believes_absences(
    store: &dyn Store,
    books: &Books,
    verdicts: &[Verdict],
    report: &mut Report,
) -> Result<bool, StoreError> {
    let mut absent = verdicts.iter().filter(|verdict| verdict.action == Action::NotArrived);
    let Some(index) = absent.find_map(|verdict| verdict.ours) else { return Ok(true) };
    if !report.is_complete {
        return Ok(false);
    }
    match store.check_history(books.ours[index].record).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == StoreErrorKind::HistoryLost => {
            let detail = "the store lost history, so no absence is believed until an operator clears the loss";
            report.flaws.push(Flaw::new("our books", detail));
            report.is_complete = false;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Writes down what a person must look at.
pub(super) async fn note(
    findings: Findings<'_>,
    source: &str,
    seen_at: Timestamp,
    report: &mut Report,
) -> Result<(), StoreError> {
    let noted = findings.note(source, &report.found, seen_at).await?;
    report.noted.add(&noted);
    Ok(())
}

/// The provider's proof about an entry of ours.
struct Proof<'a> {
    /// The provider's entry; none, if it is proven not to have happened.
    their: Option<&'a Theirs>,
    by: Option<MatchedBy>,
    settings: &'a Settings,
}

impl Proof<'_> {
    async fn settle(
        &self,
        store: &dyn Store,
        our: &Ours,
        handle: &Handle,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let is_done = match (our.subject, handle, store.outbox()) {
            (Subject::Message(number), Handle::Message(..), Some(outbox)) => {
                self.settle_message(outbox, number, handle).await?
            }
            (Subject::Record(_), Handle::Record(record), _) => {
                self.settle_record(store, record).await?
            }
            _ => return Ok(()),
        };
        *match (is_done, our.subject, self.their) {
            (false, ..) => &mut report.moved,
            (true, Subject::Message(_), Some(_)) => &mut report.delivered,
            (true, Subject::Message(_), None) => &mut report.resent,
            (true, Subject::Record(_), Some(_)) => &mut report.completed,
            (true, Subject::Record(_), None) => &mut report.freed,
        } += 1;
        Ok(())
    }

    async fn settle_message(
        &self,
        outbox: &dyn Outbox,
        number: MessageNumber,
        handle: &Handle,
    ) -> Result<bool, StoreError> {
        let Handle::Message(seen, answers) = handle else { return Ok(false) };
        let resolution = match self.their {
            Some(their) => {
                let receipt = Receipt { provider_id: Some(their.provider_id.clone()) };
                let answer = answers.as_ref().map(|answers| answers.when_delivered(&receipt));
                Resolution::Delivered { receipt, answer }
            }
            None => Resolution::NotDelivered,
        };
        let by = self.audit("delivered", "not delivered");
        let held = messages::resolve(outbox, number, *seen, &resolution, &by).await?;
        Ok(held == ClaimStatus::Current)
    }

    async fn settle_record(&self, store: &dyn Store, record: &Record) -> Result<bool, StoreError> {
        let Some(scope) = &self.settings.records else { return Ok(false) };
        let settlement = match self.their {
            Some(their) => Settlement::Happened {
                outcome: scope.answer.outcome(&their.provider_id, &their.raw),
            },
            None => Settlement::NotHappened,
        };
        let by = self.audit("settle: happened", "settle: not happened");
        Ok(match protocol::settle(store, record, settlement, Force::No, &by).await? {
            Settled::Done => true,
            Settled::Absent
            | Settled::Moved
            | Settled::AlreadyCompleted
            | Settled::StillHeld(_)
            | Settled::HistoryLost => false,
        })
    }

    fn audit(&self, happened: &str, not_happened: &str) -> AuditEntry {
        let actor = self.settings.actor();
        let Some(their) = self.their else {
            let reason = "the provider's complete account does not have it".to_owned();
            return AuditEntry { actor, action: not_happened.to_owned(), reason };
        };
        let by = match self.by {
            Some(MatchedBy::Key) => "key",
            Some(MatchedBy::ProviderId) => "id",
            Some(MatchedBy::Amount) | None => "amount and time",
        };
        let reason = format!("the provider has it as {}, matched by {by}", their.provider_id);
        AuditEntry { actor, action: happened.to_owned(), reason }
    }
}
