//! One record, from one store into another.

use std::time::Duration;

use firstwrite_core::{
    Change, Draft, DraftState, Found, Guard, Inserted, OnLostAnswer, Record, Retention, State,
    StateKind, Store, StoreError, Swapped, Timestamp,
};

/// What became of one.
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

/// Long enough for the mark that follows at once; should it not come, the record is as good as uncertain.
const LEASE: Duration = Duration::from_secs(30);

/// Copies `record`, as it stood in `from` at `now` of its clock.
pub(super) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    record: Record,
    now: Timestamp,
) -> Result<Copied, StoreError> {
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
            };
            let state = DraftState::Completed { outcome: outcome.clone(), retention };
            let is_spent = *retained_until <= now;
            place(to, draft(&record, state), is_spent).await
        }
        State::Uncertain => uncertain(from, to, &record).await,
    }
}

/// Writes a completed record where nothing stands, or where what stands has less to say.
async fn place(to: &dyn Store, draft: Draft, is_spent: bool) -> Result<Copied, StoreError> {
    let mut stands = match to.insert(&draft).await? {
        Inserted::Done(_) => return Ok(Copied::Written),
        Inserted::Stands(found) => found,
    };
    let DraftState::Completed { outcome, retention } = &draft.state else {
        return Ok(Copied::UnderWay);
    };
    // Each round means that somebody moved it; a few in a row are left for later.
    for _ in 0..3 {
        let is_same = stands.record.fence == draft.fence;
        let change = match &stands.record.state {
            State::Completed { .. } if is_same => return Ok(Copied::There),
            // It was copied while it was uncertain, and has been settled since.
            State::Uncertain | State::Reserved(_) if is_same => {
                Change::Complete { outcome: outcome.clone(), retention: *retention }
            }
            // Whoever reserved it there sees ours in the old store, and withdraws.
            State::Reserved(_) if !is_spent => return Ok(Copied::UnderWay),
            State::Completed { .. } if has_ended(&stands) && !is_spent => {
                Change::TakeOver(Box::new(draft.clone()))
            }
            State::Reserved(_) | State::Completed { .. } | State::Uncertain if is_spent => {
                return Ok(Copied::There);
            }
            State::Reserved(_) | State::Completed { .. } | State::Uncertain => {
                return Ok(Copied::Differs);
            }
        };
        let guard = Guard::Seen(stands.record.seen());
        match to.swap(draft.id, guard, change, None).await? {
            Swapped::Done(_) => return Ok(Copied::Written),
            Swapped::Moved(Some(found)) => stands = found,
            Swapped::Moved(None) => return Ok(Copied::UnderWay),
        }
    }
    Ok(Copied::UnderWay)
}

/// Reserves it there and marks it at once. It may be settled in the old store meanwhile: then the copy is
/// taken back, and the record looked at again.
async fn uncertain(
    from: &dyn Store,
    to: &dyn Store,
    record: &Record,
) -> Result<Copied, StoreError> {
    let mut draft = draft(record, DraftState::Reserved { lease_for: LEASE });
    // Should the mark not follow, a lapsed lease must mean the same.
    draft.on_lost_answer = OnLostAnswer::Uncertain;
    let was_there = match to.insert(&draft).await? {
        Inserted::Done(_) => false,
        Inserted::Stands(found) if found.record.fence != record.fence => {
            return Ok(match found.record.state.kind() {
                StateKind::Reserved => Copied::UnderWay,
                StateKind::Completed | StateKind::Uncertain => Copied::Differs,
            });
        }
        Inserted::Stands(found) => found.record.state.kind() != StateKind::Reserved,
    };
    if was_there {
        return Ok(Copied::There);
    }
    let marked =
        to.swap(record.id, Guard::Owner(record.fence), Change::MarkUncertain, None).await?;
    if let Some(now) = from.get(record.id).await?
        && now.record.seen() == record.seen()
    {
        return Ok(if matches!(marked, Swapped::Done(_)) {
            Copied::Written
        } else {
            Copied::There
        });
    }
    to.swap(record.id, Guard::Owner(record.fence), Change::Remove, None).await?;
    Ok(Copied::UnderWay)
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
        State::Reserved(_) | State::Uncertain => false,
    }
}

fn draft(record: &Record, state: DraftState) -> Draft {
    Draft {
        id: record.id,
        tenant: record.tenant.clone(),
        key: record.key.clone(),
        operation: record.operation.clone(),
        fingerprint: record.fingerprint.clone(),
        fence: record.fence,
        on_lost_answer: record.on_lost_answer,
        state,
    }
}

#[cfg(test)]
mod tests;
