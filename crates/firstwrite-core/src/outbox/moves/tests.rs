//! The moves as tables.

use super::*;
use crate::outbox::{Answers, Ending, HistoryRow, Received, Tally};
use crate::{Key, RecordId, Tenant};

const CLAIMED_AT: Timestamp = Timestamp::from_millis(1000);
const BEFORE: Timestamp = Timestamp::from_millis(500);

fn claim() -> Claim {
    Claim {
        number: MessageNumber(7),
        fence: Fence::first(1).next(2),
        claimed_at: CLAIMED_AT,
        delivery_count: 3,
        lapse_count: 2,
        maybe_sent_at: None,
        status: Some(500),
        problem: Some("it was away".to_owned()),
    }
}

fn by() -> AuditEntry {
    let [actor, action, reason] = ["ann", "dropped", "asked the provider"].map(str::to_owned);
    AuditEntry { actor, action, reason }
}

fn settled(delivery: Option<Delivery>, next: Next) -> Move {
    after_settlement(&Settlement { claim: claim(), delivery, next, answer: None })
}

fn failed() -> Delivery {
    Delivery::new(Ending::Retry, "busy").with_status(503)
}

fn draft(step: &Move) -> &PendingDraft {
    match &step.becomes {
        Becomes::Pending(draft) => draft,
        other @ (Becomes::Settled(_) | Becomes::MaybeSent(_)) => {
            panic!("written anew, not {other:?}")
        }
    }
}

fn tally(step: &Move) -> Option<Tally> {
    step.becomes.state().and_then(MessageState::tally)
}

fn told(step: &Move) -> Option<(PastEnding, &str, Kept)> {
    step.history.as_ref().map(|row| (row.ending, row.detail.as_str(), row.kept))
}

fn problem_of(step: &Move) -> Option<(Option<u16>, &str)> {
    draft(step).problem.as_ref().map(|problem| (problem.status, problem.text.as_str()))
}

#[test]
fn a_settlement_is_guarded_by_its_claim() {
    let step = settled(None, Next::Unknown("it may have arrived"));
    assert_eq!(step.guard, MoveGuard::Claimed(claim().fence));
    assert!(step.guard.holds(MessageState::Sending, claim().fence, false));
    assert!(!step.guard.holds(MessageState::Sending, claim().fence.next(1), true));
    assert!(!step.guard.holds(MessageState::Waiting, claim().fence, false));
}

#[test]
fn a_wait_counts_and_keeps_or_clears_the_doubt() {
    for (sent, before, after) in [
        (Sent::No, Some(BEFORE), None),
        (Sent::AsBefore, Some(BEFORE), Some(BEFORE)),
        (Sent::AsBefore, None, None),
        (Sent::Maybe, None, Some(CLAIMED_AT)),
        (Sent::Maybe, Some(BEFORE), Some(BEFORE)),
    ] {
        let pause = Duration::from_secs(9);
        let claim = Claim { maybe_sent_at: before, ..claim() };
        let next = Next::Waiting { pause, counts: true, sent };
        let step =
            after_settlement(&Settlement { claim, delivery: Some(failed()), next, answer: None });
        let draft = draft(&step);
        assert_eq!((draft.state, draft.due_in), (MessageState::Waiting, pause));
        assert_eq!((draft.delivery_count, draft.lapse_count), (4, 0));
        assert_eq!(draft.maybe_sent_at, after, "{sent:?} after {before:?}");
        assert_eq!(problem_of(&step), Some((Some(503), "busy")));
        assert_eq!(told(&step), Some((PastEnding::Retry, "busy", Kept::WithMove)));
        assert_eq!(tally(&step), Some(Tally::Open));
    }
}

#[test]
fn a_claim_that_is_given_back_leaves_no_trace() {
    let next = Next::Waiting { pause: Duration::ZERO, counts: false, sent: Sent::AsBefore };
    let step = settled(None, next);
    assert_eq!((problem_of(&step), told(&step)), (None, None));
    assert_eq!(draft(&step).delivery_count, 3);
}

#[test]
fn an_unknown_message_says_why_and_what_went_wrong_last() {
    let step = settled(Some(failed()), Next::Unknown("no key"));
    assert_eq!(problem_of(&step), Some((Some(503), "no key: busy")));
    assert_eq!(draft(&step).maybe_sent_at, Some(CLAIMED_AT));
    assert_eq!(tally(&step), Some(Tally::Unknown));
    let step = settled(None, Next::Unknown("no key"));
    assert_eq!(problem_of(&step), Some((Some(500), "no key: it was away")));
    let claim = Claim { problem: None, status: None, ..claim() };
    let next = Next::Unknown("no key");
    let step = after_settlement(&Settlement { claim, delivery: None, next, answer: None });
    assert_eq!(problem_of(&step), Some((None, "no key")));
}

#[test]
fn a_dead_letter_says_what_buried_it() {
    let step = settled(Some(failed()), Next::Dead(Cause::Exhausted));
    assert_eq!(problem_of(&step), Some((Some(503), "busy")));
    assert_eq!(tally(&step), Some(Tally::Dead));
    assert_eq!(problem_of(&settled(None, Next::Dead(Cause::Exhausted))), None);
    for (cause, text) in [(Cause::Exhausted, EXHAUSTED), (Cause::Refused, NEVER_TAKEN)] {
        let claim = Claim { problem: None, status: None, ..claim() };
        let next = Next::Dead(cause);
        let step = after_settlement(&Settlement { claim, delivery: None, next, answer: None });
        assert_eq!(problem_of(&step), Some((None, text)));
    }
}

#[test]
fn a_settled_message_always_has_a_row_that_says_so() {
    let receipt = || Receipt { provider_id: Some("pay_1".to_owned()) };
    let arrived = Delivery::new(Ending::Delivered(receipt()), "created").with_status(201);
    let step = settled(Some(arrived), Next::Delivered(receipt()));
    assert_eq!(told(&step), Some((PastEnding::Delivered, "created", Kept::Always)));
    assert_eq!(tally(&step), Some(Tally::Delivered));
    for delivery in [None, Some(failed())] {
        let step = settled(delivery.clone(), Next::Delivered(receipt()));
        assert_eq!(told(&step), Some((PastEnding::Delivered, FOUND_DELIVERED, Kept::IfNew)));
        assert_eq!(step.history.and_then(|row| row.receipt()), Some(receipt()));
        let step = settled(delivery, Next::Refused);
        assert_eq!(told(&step), Some((PastEnding::Refused, NEVER_TAKEN, Kept::IfNew)));
        assert_eq!(tally(&step), None);
    }
    let declined = Delivery::new(Ending::Refused, "declined").with_status(402);
    let step = settled(Some(declined), Next::Refused);
    assert_eq!(told(&step), Some((PastEnding::Refused, "declined", Kept::WithMove)));
}

#[test]
fn a_resolution_is_taken_once_and_only_without_a_current_claim() {
    let seen = Fence::first(1);
    let step = after_resolution(MessageNumber(7), seen, &Resolution::Dropped, &by());
    assert_eq!(step.becomes, Becomes::Settled(MessageState::Dropped));
    assert_eq!(told(&step), Some((PastEnding::Dropped, "asked the provider", Kept::WithMove)));
    assert_eq!(step.audit.map(|entry| entry.action), Some("dropped message 7".to_owned()));
    assert!(step.history.is_some_and(|row| row.fence > seen));
    for (state, is_leased, holds) in [
        (MessageState::Waiting, true, true),
        (MessageState::Sending, true, false),
        (MessageState::Sending, false, true),
        (MessageState::Unknown, true, true),
        (MessageState::Dead, true, true),
        (MessageState::Delivered, false, false),
        (MessageState::Refused, false, false),
        (MessageState::Dropped, false, false),
    ] {
        assert_eq!(step.guard.holds(state, seen, is_leased), holds, "{state:?}");
        assert!(!step.guard.holds(state, seen.next(1), is_leased));
    }
}

#[test]
fn a_message_that_did_not_arrive_is_due_as_if_never_sent() {
    let seen = Fence::first(1);
    let step = after_resolution(MessageNumber(7), seen, &Resolution::NotDelivered, &by());
    let draft = draft(&step);
    assert!(draft.fence > seen);
    assert_eq!((draft.delivery_count, draft.lapse_count, draft.maybe_sent_at), (0, 0, None));
    assert_eq!((told(&step), step.answer.clone()), (None, None));
}

#[test]
fn a_redriven_letter_keeps_its_fence_and_its_doubt() {
    let fence = Fence::first(1);
    let step = after_redrive(&seen(MessageState::Dead, Some(BEFORE)), CLAIMED_AT, &by());
    assert_eq!(step.guard, MoveGuard::Dead(fence));
    assert!(!step.guard.holds(MessageState::Waiting, fence, false));
    let draft = draft(&step);
    assert_eq!((draft.fence, draft.maybe_sent_at), (fence, Some(BEFORE)));
    assert_eq!(draft.delivery_count, 0);
    assert_eq!(step.audit.map(|entry| entry.action), Some("redrive message 7".to_owned()));
}

#[test]
fn a_redriven_letter_in_doubt_rests_for_as_long_as_any_other() {
    let handled_at = Some(BEFORE);
    for (maybe_sent_at, passed, due_in) in [
        (Some(BEFORE), Duration::ZERO, REST_AFTER_LOSS),
        (Some(BEFORE), Duration::from_mins(4), Duration::from_mins(1)),
        (Some(BEFORE), REST_AFTER_LOSS, Duration::ZERO),
        (None, Duration::ZERO, Duration::ZERO),
    ] {
        let dead = MessageView { handled_at, ..seen(MessageState::Dead, maybe_sent_at) };
        let step = after_redrive(&dead, BEFORE.plus(passed), &by());
        assert_eq!(draft(&step).due_in, due_in, "{maybe_sent_at:?} {passed:?}");
    }
}

#[test]
fn only_a_receipt_is_kept_without_its_claim() {
    let received = |ending| Received {
        number: MessageNumber(7),
        fence: Fence::first(1),
        delivery: Delivery::new(ending, "in a test"),
    };
    let row = HistoryRow::of_received(&received(Ending::Delivered(Receipt::default()))).unwrap();
    assert!(row.is_due(false, Some("delivered")) && row.replaces("retry"));
    assert!(!row.replaces("delivered"));
    for ending in [Ending::Refused, Ending::Retry, Ending::NotThere, Ending::Unknown] {
        assert_eq!(HistoryRow::of_received(&received(ending)), None);
    }
    let late = settled(Some(failed()), Next::Refused).history.unwrap();
    assert!(!late.is_due(false, None) && late.is_due(true, None));
    assert!(!late.is_due(true, Some("refused")), "the history says so already");
}

#[test]
fn an_answer_goes_with_its_move() {
    let outcome = |status: http::StatusCode| {
        Outcome::new(status, crate::KeptHeaders::default(), bytes::Bytes::new())
    };
    let answers = Answers {
        delivered: outcome(http::StatusCode::CREATED),
        refused: outcome(http::StatusCode::PAYMENT_REQUIRED),
    };
    let answer = answers.after(&Next::Refused);
    let settlement =
        Settlement { claim: claim(), delivery: None, next: Next::Refused, answer: answer.clone() };
    assert_eq!(after_settlement(&settlement).answer, answer);
    let refused = Resolution::Refused { answer: answer.clone() };
    let step = after_resolution(MessageNumber(7), Fence::first(1), &refused, &by());
    assert_eq!(step.answer, answer);
}

fn seen(state: MessageState, maybe_sent_at: Option<Timestamp>) -> MessageView {
    let tenant = Tenant::new("acme").unwrap();
    MessageView {
        number: MessageNumber(7),
        record: RecordId::of(&tenant, &Key::new("order-1").unwrap()),
        tenant,
        derived_key: "order-1:charge".to_owned(),
        destination: "provider".to_owned(),
        ordering_key: None,
        created_at: BEFORE,
        state,
        fence: Fence::first(1),
        due_at: None,
        delivery_count: 0,
        maybe_sent_at,
        handled_at: None,
        status: None,
        problem: None,
        receipt: None,
        payload_bytes: 0,
    }
}

#[test]
fn what_a_lost_history_may_have_sent_keeps_its_state_and_is_doubted_since_it_was_written() {
    for (state, known, since, is_told) in [
        (MessageState::Waiting, None, BEFORE, true),
        (MessageState::Sending, None, BEFORE, true),
        (MessageState::Waiting, Some(CLAIMED_AT), CLAIMED_AT, true),
        (MessageState::Unknown, Some(CLAIMED_AT), CLAIMED_AT, false),
        (MessageState::Dead, None, BEFORE, false),
    ] {
        let seen = seen(state, known);
        let step = after_history_loss(&seen, &by());
        assert_eq!((step.becomes.state(), step.history.is_none()), (None, true));
        let Becomes::MaybeSent(draft) = &step.becomes else { panic!("{step:?}") };
        assert_eq!((draft.maybe_sent_at, draft.rest_for), (since, REST_AFTER_LOSS), "{state:?}");
        assert!(draft.fence > seen.fence, "no claim settles it");
        assert_eq!(draft.problem.is_some(), is_told, "{state:?}");
        let audit = step.audit.unwrap();
        assert_eq!(audit.action, "mark as maybe sent message 7");
        assert_eq!(audit.reason, format!("{HISTORY_LOST}: asked the provider"));
        for is_leased in [true, false] {
            assert!(step.guard.holds(state, seen.fence, is_leased));
            assert!(!step.guard.holds(state, seen.fence.next(1), is_leased));
            assert!(!step.guard.holds(MessageState::Delivered, seen.fence, is_leased));
        }
    }
}
