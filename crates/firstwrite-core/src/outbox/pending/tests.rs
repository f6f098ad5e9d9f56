//! Tests of the one time in a row, through claims and moves.

use bytes::Bytes;

use super::*;
use crate::outbox::{MaybeSentDraft, PendingDraft};
use crate::{Key, Tenant};

const LEASE: Duration = Duration::from_mins(1);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn pending(due_at: Option<Timestamp>) -> Pending {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new("k").unwrap());
    let message = Message::new(&tenant, &key, "notify", "shop", Bytes::new()).unwrap();
    Pending::new(MessageNumber(1), &message, due_at)
}

fn maybe_sent(row: &Pending, rest_for: Duration) -> Becomes {
    Becomes::MaybeSent(MaybeSentDraft {
        fence: row.fence().next(7),
        maybe_sent_at: at(1),
        rest_for,
        problem: None,
    })
}

fn moved_to(state: MessageState) -> Becomes {
    Becomes::Pending(PendingDraft {
        state,
        due_in: LEASE,
        fence: Fence::first(9),
        delivery_count: 1,
        lapse_count: 0,
        maybe_sent_at: None,
        problem: Some(Problem { status: Some(503), text: "away".to_owned() }),
    })
}

#[test]
fn a_row_is_due_when_it_waits_and_when_its_claim_runs_out() {
    let waiting = pending(Some(at(5)));
    assert_eq!((waiting.due_at(), waiting.fence()), (Some(at(5)), Fence::from_u64(0)));
    let claimed = waiting.claimed(7, at(10), LEASE);
    assert_eq!(claimed.due_at(), Some(at(10).plus(LEASE)));
    assert_eq!(claimed.fence(), Fence::first(7));
    // A claim that ran out may have sent it.
    let again = claimed.claimed(8, at(90_000), LEASE);
    assert_eq!(again.fence(), Fence::first(7).next(8));
    assert_eq!((again.standing.maybe_sent_at, again.standing.lapse_count), (Some(at(10)), 1));
    for (state, due_at) in
        [(MessageState::Unknown, None), (MessageState::Waiting, Some(at(61_000)))]
    {
        let moved = claimed.moved(&moved_to(state), at(1000));
        assert_eq!((moved.state(), moved.due_at()), (state, due_at));
        assert_eq!((moved.status, moved.problem.as_deref()), (Some(503), Some("away")));
    }
}

#[test]
fn a_row_that_is_put_aside_has_no_time_until_it_is_released() {
    let aside = pending(Some(at(5))).due(None);
    assert!(aside.is_put_aside() && aside.due_at().is_none());
    let marked = aside.moved(&maybe_sent(&aside, LEASE), at(10));
    assert!(marked.is_put_aside() && marked.due_at().is_none());
    assert_eq!(marked.rested_at(), rested_at(Some(at(1)), Some(at(10))));
    let redriven = aside.moved(&moved_to(MessageState::Waiting), at(10));
    assert!(!redriven.is_put_aside());
}

#[test]
fn a_claim_that_a_history_loss_ends_rests_no_shorter_than_its_lease() {
    let claimed = pending(Some(at(5))).claimed(7, at(10), LEASE);
    // As a store reads it: one time for both.
    let read = claimed.clone().due(claimed.due_at());
    for (rest_for, due_at) in [(Duration::ZERO, at(60_010)), (2 * LEASE, at(120_020))] {
        let marked = read.moved(&maybe_sent(&read, rest_for), at(20));
        assert_eq!((marked.state(), marked.due_at()), (MessageState::Waiting, Some(due_at)));
    }
}
