//! Checks whether a concurrent history of one record is linearizable: explained by some order of its steps.
//!
//! The search tries all orders in which a step that returned before another was called comes first, and
//! remembers which sets of done steps led to which state. A step whose acknowledgement was lost may take effect
//! at any time after its call, or never.

use std::collections::HashSet;

use firstwrite_core::{Fence, StateKind, Timestamp};

/// State of a record, as far as a history can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The fence it wears.
    pub fence: Fence,
    /// The state it is in.
    pub state: StateKind,
    /// Until when its lease holds; `None` without a lease.
    pub lease: Option<LeaseEnd>,
    /// Which step wrote its content.
    pub tag: u64,
}

/// Until when a lease holds, as far as a history can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEnd {
    /// The store said so.
    Known(Timestamp),
    /// The acknowledgement was lost, and the store's time with it.
    Unknown,
}

/// One step of a history and how it ended.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The request to the store.
    pub call: Call,
    /// The store's answer.
    pub answer: Answer,
    /// Stamp of its call, in the order of all calls and returns.
    pub called_at: u64,
    /// Stamp of its return; after everything if the acknowledgement was lost.
    pub returned_at: u64,
}

/// A request to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Look.
    Get,
    /// Reserve where nothing stands.
    Insert(Standing),
    /// Change what the guard allows.
    Swap(Check, Edit),
}

/// A guard, as far as a history can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It wears this fence and is not completed.
    Owner(Fence),
    /// It looks like this.
    Seen(Fence, StateKind, Option<Timestamp>),
}

/// A change, as far as a history can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Renew the lease; only of a reserved record.
    Renew(LeaseEnd),
    /// Complete with the content of this tag.
    Complete(u64),
    /// Mark uncertain.
    MarkUncertain,
    /// Replace by this.
    TakeOver(Standing),
    /// Remove.
    Remove,
}

/// Answer of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was written.
    Done,
    /// It was not written, or only looked at; this stands there.
    Stands(Option<Standing>),
    /// The acknowledgement was lost.
    Lost,
}

/// The most steps one record's history may have: their set is a number of this many bits.
pub const OPERATIONS_MAX: usize = 128;

/// Returns true if the history of one record, starting without a record, is linearizable.
///
/// # Panics
///
/// If the history has more than [`OPERATIONS_MAX`] steps.
pub fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= OPERATIONS_MAX, "a history of one record is bounded");
    let must_happen = history
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.answer != Answer::Lost)
        .fold(0_u128, |set, (at, _)| set | 1 << at);
    let mut tried: HashSet<(u128, Option<Standing>)> = HashSet::new();
    let mut open: Vec<(u128, Option<Standing>)> = vec![(0, None)];
    while let Some((done, state)) = open.pop() {
        if done & must_happen == must_happen {
            return true;
        }
        let pending = |at: &usize| done & (1 << at) == 0;
        // Whatever was called after this instant cannot have happened before a step that ended.
        let horizon = (0..history.len()).filter(pending).map(|at| history[at].returned_at).min();
        let horizon = horizon.unwrap_or(u64::MAX);
        // What is found last is tried first: what was answered, in the order of the calls.
        let is_lost = |at: &usize| history[*at].answer == Answer::Lost;
        let lost = (0..history.len()).rev().filter(is_lost);
        let answered = (0..history.len()).rev().filter(|at| !is_lost(at));
        for at in lost.chain(answered).filter(pending) {
            if history[at].called_at > horizon {
                continue;
            }
            if let Some(After(next)) = explain(&history[at], state) {
                let entry = (done | 1 << at, next);
                if tried.insert(entry) {
                    open.push(entry);
                }
            }
        }
    }
    false
}

/// State after a step.
struct After(Option<Standing>);

/// Result of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardResult {
    Yes,
    No,
    /// It depends on a lease of which only the store knows the end.
    Perhaps,
}

/// The state after `operation` happened in `state`, if its answer agrees.
fn explain(operation: &Operation, state: Option<Standing>) -> Option<After> {
    let (held, next) = match &operation.call {
        Call::Get => (GuardResult::No, state),
        Call::Insert(draft) => match state {
            None => (GuardResult::Yes, Some(*draft)),
            Some(_) => (GuardResult::No, state),
        },
        Call::Swap(check, edit) => match state {
            Some(stands) => (holds(*check, *edit, &stands), apply(*edit, stands)),
            None => (GuardResult::No, state),
        },
    };
    match (&operation.answer, held) {
        (Answer::Done | Answer::Lost, GuardResult::Yes | GuardResult::Perhaps) => Some(After(next)),
        (Answer::Stands(seen), GuardResult::No | GuardResult::Perhaps) => {
            looks_like(state.as_ref(), seen.as_ref()).then_some(After(state))
        }
        // A lost step that changes nothing is one that never happened, which needs no try of its own.
        (Answer::Done | Answer::Lost, GuardResult::No) | (Answer::Stands(_), GuardResult::Yes) => {
            None
        }
    }
}

fn holds(check: Check, edit: Edit, stands: &Standing) -> GuardResult {
    if matches!(edit, Edit::Renew(_)) && stands.state != StateKind::Reserved {
        return GuardResult::No;
    }
    let sure = |holds| if holds { GuardResult::Yes } else { GuardResult::No };
    match check {
        Check::Owner(fence) => sure(stands.fence == fence && stands.state != StateKind::Completed),
        Check::Seen(fence, state, lease) => {
            if stands.fence != fence || stands.state != state {
                return GuardResult::No;
            }
            match (stands.lease, lease) {
                (Some(LeaseEnd::Known(stands)), Some(seen)) => sure(stands == seen),
                (Some(LeaseEnd::Unknown), Some(_)) => GuardResult::Perhaps,
                (None, None) => GuardResult::Yes,
                (Some(_), None) | (None, Some(_)) => GuardResult::No,
            }
        }
    }
}

fn apply(edit: Edit, stands: Standing) -> Option<Standing> {
    match edit {
        Edit::Renew(lease) => Some(Standing { lease: Some(lease), ..stands }),
        Edit::Complete(tag) => {
            Some(Standing { state: StateKind::Completed, lease: None, tag, ..stands })
        }
        Edit::MarkUncertain => {
            Some(Standing { state: StateKind::Uncertain, lease: None, ..stands })
        }
        Edit::TakeOver(next) => Some(next),
        Edit::Remove => None,
    }
}

fn looks_like(state: Option<&Standing>, seen: Option<&Standing>) -> bool {
    match (state, seen) {
        (None, None) => true,
        (Some(state), Some(seen)) => {
            let same_lease = state.lease == seen.lease
                || (state.lease == Some(LeaseEnd::Unknown) && seen.lease.is_some());
            state.fence == seen.fence
                && state.state == seen.state
                && state.tag == seen.tag
                && same_lease
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests;
