//! One record, from one store into another.

use std::time::Duration;

use firstwrite_core::{
    AuditEntry, Audited, Body, Change, Draft, DraftState, Found, Guard, Inserted, OnLostAnswer,
    Outcome, Record, Retention, State, StateKind, Store, StoreError, Swapped, Timestamp,
};

/// Result of copying one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Written,
    There,
    /// Its time is over: nothing is left to remember.
    Spent,
    /// Its attempt has not ended, or another one is about to withdraw in the new store.
    UnderWay,
    /// Another record stands in the new store, and this one still answers.
    Differs,
}

/// Long enough for what follows at once; should that not come, the copy becomes uncertain, and the next run
/// goes on with it.
const LEASE: Duration = Duration::from_secs(30);

/// A record that was listed while it was moving in the new store is tried this often.
const TRIES_MAX: usize = 3;

/// Copies `record`, as it stood in `from` at `now` of its clock.
pub(super) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    record: Record,
    now: Timestamp,
) -> Result<Copied, StoreError> {
    let copy = Copy { from, to, record: &record, now };
    match &record.state {
        State::Reserved(_) => Ok(Copied::UnderWay),
        // What will replace it is a message of the old store.
        State::Completed { outcome, .. } if outcome.is_interim => Ok(Copied::UnderWay),
        State::Completed { kept_until, .. } if *kept_until <= now => Ok(Copied::Spent),
        State::Completed { outcome, retained_until, kept_until } => {
            // Lengths, so that the clocks of the two stores need not agree.
            let retention = Retention {
                replay_for: rounded(retained_until.since(now)),
                linger_for: rounded(kept_until.since((*retained_until).max(now))),
                refuses_spent: record.retention.refuses_spent,
            };
            copy.completed(outcome, retention, *retained_until <= now).await
        }
        State::Uncertain { since } => copy.uncertain(now.since(*since)).await,
    }
}

/// A record of one store on its way into another.
///
/// It is reserved there first: only a reservation can be as old as its original, and takes audit entries
/// until it has ended.
struct Copy<'a> {
    from: &'a dyn Store,
    to: &'a dyn Store,
    record: &'a Record,
    now: Timestamp,
}

impl Copy<'_> {
    /// Writes a completed record where nothing stands, or where what stands has less to say.
    async fn completed(
        &self,
        outcome: &Outcome,
        retention: Retention,
        is_spent: bool,
    ) -> Result<Copied, StoreError> {
        // A reconciliation reads what a lost answer meant. A lapsed copy that a sweep frees is made again; what is
        // only refused any more would run meanwhile.
        let is_refused = is_spent && retention.refuses_spent;
        let kept = self.record.on_lost_answer;
        let on_lost_answer = if is_refused { uncertain_at_least(kept) } else { kept };
        let draft = self.draft(retention, on_lost_answer);
        // Each further try means that the record changed meanwhile; after a few in a row it is left for later.
        for _ in 0..TRIES_MAX {
            if let Inserted::Stands(found) = self.to.insert(&draft).await? {
                let is_same = found.record.fence == draft.fence;
                match found.record.state.kind() {
                    StateKind::Completed if is_same && is_freed(&found, outcome) => {
                        let guard = Guard::Seen(found.record.seen());
                        self.to.swap(draft.id, guard, Change::Remove, None).await?;
                        continue;
                    }
                    StateKind::Completed if is_same => return Ok(Copied::There),
                    // Broken off before, or copied while it was uncertain and settled since.
                    StateKind::Reserved | StateKind::Uncertain if is_same => {}
                    // The attempt that reserved it there sees this record in the old store, and withdraws.
                    StateKind::Reserved if !is_spent => return Ok(Copied::UnderWay),
                    StateKind::Completed if has_ended(&found) && !is_spent => {
                        let guard = Guard::Seen(found.record.seen());
                        self.to.swap(draft.id, guard, Change::Remove, None).await?;
                        continue;
                    }
                    StateKind::Reserved | StateKind::Completed | StateKind::Uncertain => {
                        return Ok(if is_spent { Copied::There } else { Copied::Differs });
                    }
                }
            }
            self.audits().await?;
            let change = Change::Complete { outcome: outcome.clone(), retention };
            if let Swapped::Done(_) = self.swap(change, None).await? {
                return Ok(Copied::Written);
            }
        }
        Ok(Copied::UnderWay)
    }

    /// Reserves it there and marks it. It may be settled in the old store meanwhile: then the copy is taken
    /// back, and the record looked at again.
    async fn uncertain(&self, ago: Duration) -> Result<Copied, StoreError> {
        let record = self.record;
        // Should nothing follow, the lapsed lease frees no key.
        let draft = self.draft(record.retention, uncertain_at_least(record.on_lost_answer));
        if let Inserted::Stands(found) = self.to.insert(&draft).await? {
            let is_same = found.record.fence == record.fence;
            match found.record.state.kind() {
                StateKind::Reserved if is_same => {}
                StateKind::Reserved => return Ok(Copied::UnderWay),
                StateKind::Completed | StateKind::Uncertain => {
                    return Ok(if is_same { Copied::There } else { Copied::Differs });
                }
            }
        }
        self.audits().await?;
        let marked = self.swap(Change::MarkUncertain { ago }, None).await?;
        if let Some(now) = self.from.get(record.id).await?
            && now.record.seen() == record.seen()
        {
            return Ok(match marked {
                Swapped::Done(_) => Copied::Written,
                Swapped::Moved(_) => Copied::There,
            });
        }
        self.swap(Change::Remove, None).await?;
        Ok(Copied::UnderWay)
    }

    /// Copies the audit entries that the copy lacks, as old as they are.
    async fn audits(&self) -> Result<(), StoreError> {
        let audits = self.from.audits(self.record.id).await?;
        if audits.is_empty() {
            return Ok(());
        }
        let mut there = self.to.audits(self.record.id).await?;
        for Audited { at, entry } in audits {
            if let Some(place) = there.iter().position(|known| known.entry == entry) {
                there.swap_remove(place);
            } else {
                self.swap(Change::Note { ago: self.now.since(at) }, Some(&entry)).await?;
            }
        }
        Ok(())
    }

    async fn swap(
        &self,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, StoreError> {
        self.to.swap(self.record.id, Guard::Owner(self.record.fence), change, audit).await
    }

    /// A reservation under the record's own fence, so that late owners and repeated runs are recognised.
    fn draft(&self, retention: Retention, on_lost_answer: OnLostAnswer) -> Draft {
        let record = self.record;
        let asked_ago = self.now.since(record.created_at);
        Draft {
            id: record.id,
            tenant: record.tenant.clone(),
            key: record.key.clone(),
            operation: record.operation.clone(),
            fingerprint: record.fingerprint.clone(),
            fence: record.fence,
            on_lost_answer,
            retention,
            state: DraftState::Reserved { lease_for: LEASE, asked_ago },
        }
    }
}

/// The probe of a record moves with it.
fn uncertain_at_least(on_lost_answer: OnLostAnswer) -> OnLostAnswer {
    match on_lost_answer {
        OnLostAnswer::Resend => OnLostAnswer::Uncertain,
        kept @ (OnLostAnswer::Uncertain | OnLostAnswer::Ask(_)) => kept,
    }
}

/// Returns true if `found` is a copy that a sweep freed before `outcome` was written.
fn is_freed(found: &Found, outcome: &Outcome) -> bool {
    let State::Completed { outcome: there, .. } = &found.record.state else { return false };
    there.body == Body::Released && outcome.body != Body::Released
}

/// Rounded up, never down: stores keep what many records have in common once, and a length of its own for each
/// record would make every one of them a stranger.
fn rounded(left: Duration) -> Duration {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let step = if seconds > 2 * HOUR { HOUR } else { MINUTE };
    Duration::from_secs(seconds.div_ceil(step) * step)
}

fn has_ended(found: &Found) -> bool {
    match &found.record.state {
        State::Completed { retained_until, .. } => *retained_until <= found.now,
        State::Reserved(_) | State::Uncertain { .. } => false,
    }
}

#[cfg(test)]
mod tests;
