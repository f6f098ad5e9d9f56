//! Hand-made histories, good and bad.

use super::*;

fn reserved(nonce: u64) -> Standing {
    let lease = Some(LeaseEnd::Known(Timestamp::from_millis(100)));
    Standing { fence: Fence::first(nonce), state: StateKind::Reserved, lease, tag: nonce }
}

fn completed(nonce: u64, tag: u64) -> Standing {
    Standing { state: StateKind::Completed, lease: None, tag, ..reserved(nonce) }
}

fn step(call: Call, answer: Answer, called_at: u64, returned_at: u64) -> Operation {
    Operation { call, answer, called_at, returned_at }
}

fn insert(nonce: u64, answer: Answer, called_at: u64, returned_at: u64) -> Operation {
    step(Call::Insert(reserved(nonce)), answer, called_at, returned_at)
}

fn complete(nonce: u64, tag: u64, answer: Answer, span: (u64, u64)) -> Operation {
    let call = Call::Swap(Check::Owner(Fence::first(nonce)), Edit::Complete(tag));
    step(call, answer, span.0, span.1)
}

fn get(seen: Option<Standing>, called_at: u64, returned_at: u64) -> Operation {
    step(Call::Get, Answer::Stands(seen), called_at, returned_at)
}

#[test]
fn one_winner_among_rivals_is_explained() {
    let history = [
        insert(1, Answer::Stands(Some(reserved(2))), 0, 5),
        insert(2, Answer::Done, 1, 4),
        get(Some(reserved(2)), 6, 7),
    ];
    assert!(is_linearizable(&history));
}

#[test]
fn two_winners_are_not_explained() {
    let history = [insert(1, Answer::Done, 0, 5), insert(2, Answer::Done, 1, 4)];
    assert!(!is_linearizable(&history));
}

#[test]
fn a_read_of_the_past_is_not_explained() {
    let history = [insert(1, Answer::Done, 0, 1), get(None, 2, 3)];
    assert!(!is_linearizable(&history));
    // At the same time as the insert, either answer is fine.
    let history = [insert(1, Answer::Done, 0, 3), get(None, 1, 2)];
    assert!(is_linearizable(&history));
}

#[test]
fn a_lost_step_happens_late_or_never() {
    let lost = insert(1, Answer::Lost, 0, u64::MAX);
    assert!(is_linearizable(&[lost.clone(), get(None, 1, 2)]));
    assert!(is_linearizable(&[lost.clone(), get(None, 1, 2), get(Some(reserved(1)), 3, 4)]));
    // But once seen it stays visible, and no reader sees it before its call.
    let history = [lost.clone(), get(Some(reserved(1)), 1, 2), get(None, 3, 4)];
    assert!(!is_linearizable(&history));
    let early = Operation { called_at: 9, ..lost };
    assert!(!is_linearizable(&[get(Some(reserved(1)), 1, 2), early]));
}

#[test]
fn an_outcome_that_changes_is_not_explained() {
    let history = [
        insert(1, Answer::Done, 0, 1),
        complete(1, 7, Answer::Done, (2, 3)),
        get(Some(completed(1, 7)), 4, 5),
        get(Some(completed(1, 8)), 6, 7),
    ];
    assert!(!is_linearizable(&history));
    assert!(is_linearizable(&history[..3]));
}

#[test]
fn a_stale_fence_that_was_accepted_is_not_explained() {
    let history = [insert(1, Answer::Done, 0, 1), complete(2, 7, Answer::Done, (2, 3))];
    assert!(!is_linearizable(&history));
}

#[test]
fn a_renewal_that_went_unnoticed_is_not_explained() {
    let (old, new) = (Timestamp::from_millis(100), Timestamp::from_millis(200));
    let renew = Edit::Renew(LeaseEnd::Known(new));
    let sweep = |lease, at| {
        let check = Check::Seen(Fence::first(1), StateKind::Reserved, Some(lease));
        step(Call::Swap(check, Edit::Remove), Answer::Done, at, at + 1)
    };
    let renewed = step(Call::Swap(Check::Owner(Fence::first(1)), renew), Answer::Done, 2, 3);
    let history = [insert(1, Answer::Done, 0, 1), renewed.clone(), sweep(old, 4)];
    assert!(!is_linearizable(&history));
    assert!(is_linearizable(&[insert(1, Answer::Done, 0, 1), renewed, sweep(new, 4)]));
}

#[test]
fn a_heartbeat_that_revived_an_uncertain_record_is_not_explained() {
    let owner = Check::Owner(Fence::first(1));
    let history = [
        insert(1, Answer::Done, 0, 1),
        step(Call::Swap(owner, Edit::MarkUncertain), Answer::Done, 2, 3),
        step(Call::Swap(owner, Edit::Renew(LeaseEnd::Unknown)), Answer::Done, 4, 5),
    ];
    assert!(!is_linearizable(&history));
}
