//! Turns a settlement, a resolution, a redrive or a history loss into one [`Move`] of the message, complete
//! as it is written.
//!
//! This is the only place where they are turned into rows, and the only place for the texts of the history
//! and the audit. An outbox checks the guard of a move, adds its own time and writes; it decides nothing.

use std::time::Duration;

use super::{
    Cause, Claim, Delivery, HistoryRow, Kept, MessageNumber, MessageState, MessageView, Next,
    PastEnding, REST_AFTER_LOSS, Receipt, Resolution, Sent, Settlement, rested_at, shortened,
};
use crate::{AuditEntry, Fence, Outcome, Timestamp};

/// One atomic step of a message. If the guard does not hold, only a history row that is kept
/// [`Kept::Always`] is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which message.
    pub number: MessageNumber,
    /// The condition under which the step is taken.
    pub guard: MoveGuard,
    /// The message afterwards.
    pub becomes: Becomes,
    /// A row for the history of the message.
    pub history: Option<HistoryRow>,
    /// The outcome that replaces the record's interim one, if the record has one.
    pub answer: Option<Outcome>,
    /// An entry for the audit of the message's record.
    pub audit: Option<AuditEntry>,
}

/// The condition under which a move is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveGuard {
    /// The claim with this fence is current.
    Claimed(Fence),
    /// The message is not settled, its last fence is this one, and no claim of it is current: a lease that
    /// ran out is no claim.
    Idle(Fence),
    /// The message is a dead letter, and its last fence is this one.
    Dead(Fence),
    /// The message is not settled, and its last fence is this one, whether or not a claim of it is current.
    Unsettled(Fence),
}

/// A message after a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// It is still pending: waiting, unknown or dead.
    Pending(PendingDraft),
    /// It is settled for good: delivered, refused or dropped. Its successor under the same ordering key may
    /// be claimed.
    Settled(MessageState),
    /// It keeps its place under its ordering key and its counts, but may have been sent. If it was being sent,
    /// it waits again, since no worker holds its claim any more; otherwise it keeps its state.
    MaybeSent(MaybeSentDraft),
}

/// The columns that a move writes of a message that is still pending. All others stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDraft {
    /// Waiting, unknown or dead.
    pub state: MessageState,
    /// Time from the store's present time until the message is due. Only a waiting message is due, and not
    /// before its predecessors under the same ordering key.
    pub due_in: Duration,
    /// Its fence from now on.
    pub fence: Fence,
    /// Number of deliveries that have counted.
    pub delivery_count: u32,
    /// Number of claims in a row that ran out without a settlement.
    pub lapse_count: u32,
    /// Earliest time at which the message may have reached the destination, if it may have.
    pub maybe_sent_at: Option<Timestamp>,
    /// The problem that replaces the one that is shown. `None` keeps it.
    pub problem: Option<Problem>,
}

/// The columns that a move writes of a message that a lost history may have sent. All others stay as they
/// are, but the time of its last claim, which becomes the store's present time, since the lost history may have
/// claimed it as late as that, and the state of one that is being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybeSentDraft {
    /// Its fence from now on. A claim under an earlier one is no longer current.
    pub fence: Fence,
    /// Earliest time at which the message may have reached the destination.
    pub maybe_sent_at: Timestamp,
    /// Time from the store's present time before which the message cannot be claimed, even if it is due, or if
    /// its predecessor under its ordering key ends.
    pub rest_for: Duration,
    /// The problem that replaces the one that is shown. `None` keeps it.
    pub problem: Option<Problem>,
}

/// A problem of a message, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// A few words.
    pub text: String,
}

const FOUND_DELIVERED: &str = "found to have arrived";
const NEVER_TAKEN: &str = "the destination will never take it";
const EXHAUSTED: &str = "its deliveries are exhausted";
const HISTORY_LOST: &str =
    "the store lost history, and the message may have been sent in what is missing";

/// The move that follows from the end of a claim.
pub fn after_settlement(settlement: &Settlement) -> Move {
    let Settlement { claim, delivery, next, answer } = settlement;
    let own =
        delivery.as_ref().map(|delivery| HistoryRow::of((claim.number, claim.fence), delivery));
    let (becomes, history) = match next {
        Next::Delivered(receipt) => {
            let found = of_receipt(claim, receipt, FOUND_DELIVERED);
            let own = own.filter(|row| row.ending == PastEnding::Delivered);
            (Becomes::Settled(MessageState::Delivered), Some(own.unwrap_or(found)))
        }
        Next::Refused => {
            let ending = PastEnding::Refused;
            let told = HistoryRow { ending, ..of_receipt(claim, &Receipt::default(), NEVER_TAKEN) };
            let own = own.filter(|row| row.ending == PastEnding::Refused);
            (Becomes::Settled(MessageState::Refused), Some(own.unwrap_or(told)))
        }
        Next::Waiting { .. } | Next::Unknown(_) | Next::Dead(_) => {
            (Becomes::Pending(pending(claim, delivery.as_ref(), next)), own)
        }
    };
    Move {
        number: claim.number,
        guard: MoveGuard::Claimed(claim.fence),
        becomes,
        history,
        answer: answer.clone(),
        audit: None,
    }
}

/// The move that follows from an operator's word on a message that was seen with the fence `seen`.
pub fn after_resolution(
    number: MessageNumber,
    seen: Fence,
    resolution: &Resolution,
    by: &AuditEntry,
) -> Move {
    // A new fence, so that a second resolution under the old one is refused.
    let fence = seen.next(seen.as_u64());
    let told = |ending, provider_id: Option<&str>| HistoryRow {
        number,
        fence,
        ending,
        status: None,
        detail: shortened(&by.reason),
        provider_id: provider_id.map(shortened),
        kept: Kept::WithMove,
    };
    let (becomes, history, answer) = match resolution {
        Resolution::Delivered { receipt, answer } => {
            let row = told(PastEnding::Delivered, receipt.provider_id.as_deref());
            (Becomes::Settled(MessageState::Delivered), Some(row), answer.clone())
        }
        Resolution::Refused { answer } => {
            let row = told(PastEnding::Refused, None);
            (Becomes::Settled(MessageState::Refused), Some(row), answer.clone())
        }
        Resolution::Dropped => {
            let row = told(PastEnding::Dropped, None);
            (Becomes::Settled(MessageState::Dropped), Some(row), None)
        }
        Resolution::NotDelivered => (Becomes::Pending(due_at_once(fence, None)), None, None),
    };
    Move {
        number,
        guard: MoveGuard::Idle(seen),
        becomes,
        history,
        answer,
        audit: Some(audit(by, &by.action, number)),
    }
}

/// The move that puts back a dead letter, as it was `seen` at `now`, and keeps its doubt and the rest that goes
/// with one.
pub fn after_redrive(seen: &MessageView, now: Timestamp, by: &AuditEntry) -> Move {
    let rested_at = rested_at(seen.maybe_sent_at, seen.handled_at);
    let due_in = rested_at.map_or(Duration::ZERO, |rested_at| rested_at.since(now));
    Move {
        number: seen.number,
        guard: MoveGuard::Dead(seen.fence),
        becomes: Becomes::Pending(PendingDraft {
            due_in,
            ..due_at_once(seen.fence, seen.maybe_sent_at)
        }),
        history: None,
        answer: None,
        audit: Some(audit(by, "redrive", seen.number)),
    }
}

/// The move that marks a message of a store that lost history, as it was `seen`, as one that may have been
/// sent.
///
/// What the store knows of it is older than what was done: it may have been sent at any time since it was
/// written. A time that the store knows stands, since nothing was sent before it.
pub fn after_history_loss(seen: &MessageView, by: &AuditEntry) -> Move {
    // What a person is to decide about keeps the cause for which it came to that.
    let waits_for_people = matches!(seen.state, MessageState::Unknown | MessageState::Dead);
    let reason = format!("{HISTORY_LOST}: {}", by.reason);
    Move {
        number: seen.number,
        guard: MoveGuard::Unsettled(seen.fence),
        becomes: Becomes::MaybeSent(MaybeSentDraft {
            // A new fence, so that a worker that holds a claim cannot settle the message as if never sent.
            fence: seen.fence.next(seen.fence.as_u64()),
            maybe_sent_at: seen.maybe_sent_at.unwrap_or(seen.created_at),
            rest_for: REST_AFTER_LOSS,
            problem: (!waits_for_people).then(|| problem(None, HISTORY_LOST)),
        }),
        history: None,
        answer: None,
        audit: Some(AuditEntry { reason, ..audit(by, "mark as maybe sent", seen.number) }),
    }
}

fn pending(claim: &Claim, delivery: Option<&Delivery>, next: &Next) -> PendingDraft {
    let doubt = claim.maybe_sent_at.or(Some(claim.claimed_at));
    let told = delivery.map(|delivery| problem(delivery.status, &delivery.detail));
    let standing = PendingDraft {
        state: MessageState::Waiting,
        due_in: Duration::ZERO,
        fence: claim.fence,
        delivery_count: claim.delivery_count,
        lapse_count: claim.lapse_count,
        maybe_sent_at: claim.maybe_sent_at,
        problem: told.clone(),
    };
    match next {
        Next::Waiting { pause, counts, sent } => PendingDraft {
            due_in: *pause,
            delivery_count: claim.delivery_count.saturating_add(u32::from(*counts)),
            lapse_count: 0,
            maybe_sent_at: match sent {
                Sent::No => None,
                Sent::AsBefore => claim.maybe_sent_at,
                Sent::Maybe => doubt,
            },
            ..standing
        },
        Next::Unknown(why) => {
            let before = claim.problem.as_ref().map(|text| problem(claim.status, text));
            let problem = match told.or(before) {
                Some(Problem { status, text }) => problem(status, &format!("{why}: {text}")),
                None => problem(claim.status, why),
            };
            let (state, problem) = (MessageState::Unknown, Some(problem));
            PendingDraft { state, maybe_sent_at: doubt, problem, ..standing }
        }
        Next::Dead(cause) => {
            let text = match cause {
                Cause::Refused => NEVER_TAKEN,
                Cause::Exhausted => EXHAUSTED,
            };
            let is_told = told.is_some() || claim.problem.is_some();
            let problem = if is_told { told } else { Some(problem(claim.status, text)) };
            PendingDraft { state: MessageState::Dead, problem, ..standing }
        }
        Next::Delivered(_) | Next::Refused => standing,
    }
}

fn due_at_once(fence: Fence, maybe_sent_at: Option<Timestamp>) -> PendingDraft {
    PendingDraft {
        state: MessageState::Waiting,
        due_in: Duration::ZERO,
        fence,
        delivery_count: 0,
        lapse_count: 0,
        maybe_sent_at,
        problem: None,
    }
}

fn problem(status: Option<u16>, text: &str) -> Problem {
    Problem { status, text: shortened(text) }
}

fn audit(by: &AuditEntry, action: &str, number: MessageNumber) -> AuditEntry {
    AuditEntry { action: format!("{action} message {number}"), ..by.clone() }
}

fn of_receipt(claim: &Claim, receipt: &Receipt, detail: &str) -> HistoryRow {
    HistoryRow {
        number: claim.number,
        fence: claim.fence,
        ending: PastEnding::Delivered,
        status: None,
        detail: detail.to_owned(),
        provider_id: receipt.provider_id.as_deref().map(shortened),
        kept: Kept::IfNew,
    }
}

impl Becomes {
    /// Returns the state of the message after the move; `None` if the one that it has decides it.
    pub fn state(&self) -> Option<MessageState> {
        match self {
            Self::Pending(draft) => Some(draft.state),
            Self::Settled(state) => Some(*state),
            Self::MaybeSent(_) => None,
        }
    }

    /// Returns the problem that the message shows after the move, if it is another one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Pending(draft) => draft.problem.as_ref(),
            Self::MaybeSent(draft) => draft.problem.as_ref(),
            Self::Settled(_) => None,
        }
    }
}

impl MoveGuard {
    /// The fence that the message must have.
    pub fn fence(self) -> Fence {
        let (Self::Claimed(fence) | Self::Idle(fence) | Self::Dead(fence) | Self::Unsettled(fence)) =
            self;
        fence
    }

    /// Returns true if a message in `state` whose last fence is `fence` may be moved. `is_leased` says that
    /// the lease of its last claim has not run out.
    pub fn holds(self, state: MessageState, fence: Fence, is_leased: bool) -> bool {
        self.fence() == fence
            && match self {
                Self::Claimed(_) => state == MessageState::Sending,
                Self::Dead(_) => state == MessageState::Dead,
                Self::Unsettled(_) => !state.is_final(),
                Self::Idle(_) => {
                    !state.is_final() && (state != MessageState::Sending || !is_leased)
                }
            }
    }
}

#[cfg(test)]
mod tests;
