//! The rules as tables.

use bytes::Bytes;
use http::StatusCode;

use super::*;
use crate::outbox::{Answers, MessageNumber};
use crate::{Fence, KeptHeaders, Key, Outcome, RecordId, Tenant};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

fn message() -> ClaimedMessage {
    let tenant = Tenant::new("acme").unwrap();
    ClaimedMessage {
        number: MessageNumber(1),
        fence: Fence::first(1),
        record: RecordId::of(&tenant, &Key::new("order-1").unwrap()),
        tenant,
        derived_key: "order-1:charge".to_owned(),
        destination: "provider".to_owned(),
        content_type: "application/json".to_owned(),
        payload: Bytes::new(),
        ordering_key: None,
        created_at: NOW,
        delivery_count: 0,
        lapse_count: 0,
        is_trial: false,
        maybe_sent_at: None,
        receipt: None,
        answers: None,
        claimed_at: NOW,
        status: None,
        problem: None,
    }
}

fn ago(duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap();
    Timestamp::from_millis(NOW.as_millis() - millis)
}

/// A destination that honours keys for a day, one that does not, one that can be asked.
fn honours() -> Terms {
    Terms { dedupe_for: 24 * HOUR, ..Terms::default() }
}

fn ignores() -> Terms {
    Terms::default()
}

fn answers() -> Terms {
    Terms { can_be_asked: true, ..Terms::default() }
}

fn at(random: f64) -> Moment {
    Moment { now: NOW, random }
}

fn delivered(ending: Ending) -> Delivery {
    Delivery::new(ending, "in a test")
}

/// With the longest pause that may be drawn.
fn after(message: &ClaimedMessage, terms: &Terms, ending: Ending) -> Next {
    after_delivery(message, terms, &delivered(ending), false, at(1.0))
}

fn waiting(next: Next) -> (Duration, bool, Sent) {
    match next {
        Next::Waiting { pause, counts, sent } => (pause, counts, sent),
        other @ (Next::Delivered(_) | Next::Unknown(_) | Next::Refused | Next::Dead(_)) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn what_never_left_is_sent_to_any_destination() {
    for terms in [honours(), ignores(), answers()] {
        assert_eq!(next_step(&message(), &terms, NOW), Step::Send);
    }
}

#[test]
fn what_may_have_arrived_is_sent_again_only_where_its_key_is_recognised() {
    let doubtful = |since| ClaimedMessage { maybe_sent_at: Some(ago(since)), ..message() };
    assert_eq!(next_step(&doubtful(HOUR), &honours(), NOW), Step::Send);
    assert_eq!(next_step(&doubtful(HOUR), &answers(), NOW), Step::Ask);
    assert!(matches!(next_step(&doubtful(SECOND), &ignores(), NOW), Step::Hold(_)));
    // The last one must arrive before the key is forgotten, also if its answer is not waited for.
    let day = Terms { timeout: HOUR, ..honours() };
    let in_time = 21 * HOUR + 3599 * SECOND;
    assert_eq!(next_step(&doubtful(in_time), &day, NOW), Step::Send);
    assert!(matches!(next_step(&doubtful(22 * HOUR), &day, NOW), Step::Hold(_)));
}

#[test]
fn what_is_known_to_have_arrived_is_never_sent() {
    let receipt = Receipt { provider_id: Some("pay_1".to_owned()) };
    let message = ClaimedMessage {
        receipt: Some(receipt.clone()),
        maybe_sent_at: Some(ago(HOUR)),
        ..message()
    };
    assert_eq!(next_step(&message, &ignores(), NOW), Step::Settle(receipt));
}

#[test]
fn a_message_under_which_claims_keep_running_out_is_held() {
    let message = ClaimedMessage { lapse_count: LAPSE_COUNT_MAX, ..message() };
    assert!(matches!(next_step(&message, &honours(), NOW), Step::Hold(_)));
}

#[test]
fn pauses_double_up_to_a_bound_and_are_drawn_from_all_of_it() {
    let terms = honours();
    let bounds = (0..16).map(|delivery_count| {
        waiting(after(&ClaimedMessage { delivery_count, ..message() }, &terms, Ending::Retry)).0
    });
    let bounds: Vec<_> = bounds.collect();
    assert_eq!(bounds[..4], [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]);
    assert_eq!(bounds[15], HOUR);
    let drawn = |random| {
        let retry = delivered(Ending::Retry);
        waiting(after_delivery(&message(), &terms, &retry, false, at(random))).0
    };
    assert_eq!(drawn(0.0), Duration::ZERO);
    assert_eq!(drawn(0.5), SECOND / 2);
}

#[test]
fn what_a_destination_asks_for_is_granted_within_reason() {
    let asked = |retry_after| {
        let retry = Delivery { retry_after: Some(retry_after), ..delivered(Ending::Retry) };
        waiting(after_delivery(&message(), &honours(), &retry, false, at(0.5))).0
    };
    assert_eq!(asked(90 * SECOND), 90 * SECOND);
    assert_eq!(asked(24 * HOUR), Terms::RETRY_AFTER_MAX);
    assert_eq!(asked(Duration::ZERO), SECOND / 2);
}

#[test]
fn a_lost_answer_is_asked_about_or_repeated_or_held() {
    // Not before what was sent can no longer be under way.
    assert_eq!(
        waiting(after(&message(), &answers(), Ending::Unknown)),
        (answers().timeout, true, Sent::Maybe)
    );
    assert_eq!(
        waiting(after(&message(), &honours(), Ending::Unknown)),
        (SECOND, true, Sent::Maybe)
    );
    assert!(matches!(after(&message(), &ignores(), Ending::Unknown), Next::Unknown(_)));
    // A pause that would lead out of the window is not begun.
    let late =
        ClaimedMessage { maybe_sent_at: Some(ago(23 * HOUR)), delivery_count: 20, ..message() };
    assert!(matches!(after(&late, &honours(), Ending::Unknown), Next::Unknown(_)));
}

#[test]
fn the_last_delivery_makes_a_dead_letter_only_of_what_cannot_have_arrived() {
    let last = ClaimedMessage { delivery_count: honours().delivery_count_max - 1, ..message() };
    let doubtful = ClaimedMessage { maybe_sent_at: Some(ago(HOUR)), ..last.clone() };
    assert_eq!(after(&last, &honours(), Ending::Retry), Next::Dead(Cause::Exhausted));
    assert!(matches!(after(&doubtful, &honours(), Ending::Retry), Next::Unknown(_)));
    assert!(matches!(after(&last, &honours(), Ending::Unknown), Next::Unknown(_)));
    let retry = delivered(Ending::Retry);
    let proven = after_delivery(&doubtful, &answers(), &retry, true, at(1.0));
    assert_eq!(proven, Next::Dead(Cause::Exhausted));
}

/// A message whose client waits for what becomes of it.
fn awaited() -> ClaimedMessage {
    let nothing = || Outcome::new(StatusCode::OK, KeptHeaders::default(), Bytes::new());
    let told = Answers { delivered: nothing(), refused: nothing() };
    ClaimedMessage { answers: Some(Box::new(told)), ..message() }
}

#[test]
fn a_refusal_is_final_at_once() {
    assert_eq!(after(&message(), &honours(), Ending::Refused), Next::Dead(Cause::Refused));
    assert_eq!(after(&awaited(), &honours(), Ending::Refused), Next::Refused);
}

#[test]
fn a_refusal_of_what_may_have_arrived_proves_nothing() {
    let by_key = || Terms { answers_refusals_by_key: true, ..honours() };
    let forgetful_by_key = || Terms { answers_refusals_by_key: true, ..ignores() };
    let asked_by_key = || Terms { can_be_asked: true, ..by_key() };
    let last = honours().delivery_count_max - 1;
    // Terms, since when it may have arrived, deliveries before this one, whether absence was proven
    // just before, what becomes of it.
    let table = [
        (honours(), HOUR, 0, false, "held"),
        (ignores(), HOUR, 0, false, "held"),
        (honours(), HOUR, last, false, "held"),
        (answers(), HOUR, 0, false, "asked about"),
        (answers(), HOUR, last, false, "held"),
        (answers(), HOUR, 0, true, "refused"),
        (answers(), HOUR, last, true, "refused"),
        (by_key(), HOUR, 0, false, "refused"),
        (by_key(), HOUR, last, false, "refused"),
        // What it answers after it has forgotten the key is no answer by key.
        (by_key(), 24 * HOUR, 0, false, "held"),
        (by_key(), 23 * HOUR, 0, false, "refused"),
        (asked_by_key(), 24 * HOUR, 0, false, "asked about"),
        // A destination that recognises no key cannot refuse by it, whatever it declares.
        (forgetful_by_key(), SECOND, 0, false, "held"),
    ];
    for (number, (terms, since, delivery_count, proven, expected)) in table.into_iter().enumerate()
    {
        for before in [message(), awaited()] {
            let doubtful =
                ClaimedMessage { maybe_sent_at: Some(ago(since)), delivery_count, ..before };
            let is_awaited = doubtful.answers.is_some();
            let refused = delivered(Ending::Refused);
            let next = after_delivery(&doubtful, &terms, &refused, proven, at(1.0));
            let became = match next {
                Next::Refused if is_awaited => "refused",
                Next::Dead(Cause::Refused) if !is_awaited => "refused",
                Next::Unknown(_) => "held",
                // Not before what was sent can no longer be under way, and with its doubt.
                Next::Waiting { pause, counts: true, sent: Sent::AsBefore }
                    if pause >= terms.timeout =>
                {
                    "asked about"
                }
                other @ (Next::Delivered(_)
                | Next::Waiting { .. }
                | Next::Refused
                | Next::Dead(_)) => panic!("row {number}: {other:?}"),
            };
            assert_eq!(became, expected, "row {number}");
        }
    }
}

#[test]
fn nothing_but_proof_ends_a_doubt() {
    let all = || {
        let receipt = Receipt { provider_id: None };
        [
            Ending::Delivered(receipt),
            Ending::Refused,
            Ending::Retry,
            Ending::NotThere,
            Ending::Unknown,
        ]
    };
    for terms in [honours(), ignores(), answers()] {
        for delivery_count in [0, terms.delivery_count_max - 1, terms.delivery_count_max] {
            for is_trial in [false, true] {
                for ending in all() {
                    let doubtful = ClaimedMessage {
                        maybe_sent_at: Some(ago(HOUR)),
                        delivery_count,
                        is_trial,
                        ..awaited()
                    };
                    let is_delivered = matches!(ending, Ending::Delivered(_));
                    match after(&doubtful, &terms, ending) {
                        Next::Delivered(_) => assert!(is_delivered),
                        Next::Unknown(_) => {}
                        Next::Waiting { sent, .. } => assert_ne!(sent, Sent::No),
                        other @ (Next::Refused | Next::Dead(_)) => panic!("{terms:?}: {other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_destination_that_is_not_there_costs_time_and_no_deliveries() {
    let doubt = Some(ago(HOUR));
    for terms in [honours(), ignores(), answers()] {
        for (delivery_count, maybe_sent_at) in [(0, None), (24, None), (0, doubt), (24, doubt)] {
            let message = ClaimedMessage { delivery_count, maybe_sent_at, ..awaited() };
            let next = waiting(after(&message, &terms, Ending::NotThere));
            // It may have acted and then redirected the caller, so a destination that can be asked is
            // asked.
            let sent = if terms.can_be_asked { Sent::Maybe } else { Sent::AsBefore };
            assert_eq!(next, (FailureWindow::OPEN_MAX, false, sent));
        }
    }
    let quick = Terms { pause_max: SECOND, ..honours() };
    assert_eq!(waiting(after(&message(), &quick, Ending::NotThere)).0, SECOND);
    let asked = Delivery { retry_after: Some(HOUR), ..delivered(Ending::NotThere) };
    let next = after_delivery(&message(), &honours(), &asked, false, at(0.0));
    assert_eq!(waiting(next).0, HOUR);
    let doubtful = ClaimedMessage { maybe_sent_at: doubt, ..message() };
    let absent = delivered(Ending::NotThere);
    let proven = after_delivery(&doubtful, &honours(), &absent, true, at(1.0));
    assert_eq!(waiting(proven).2, Sent::No);
    // So does something that answers a probe in its place.
    for delivery_count in [0, 24, 25] {
        let doubtful = ClaimedMessage { delivery_count, ..doubtful.clone() };
        let away = Probed::NotThere("answered 404".to_owned());
        let next = after_probe(&doubtful, &answers(), &away, at(1.0)).unwrap();
        assert_eq!(waiting(next), (FailureWindow::OPEN_MAX, false, Sent::AsBefore));
    }
}

#[test]
fn a_trial_never_counts() {
    let trial = ClaimedMessage { is_trial: true, delivery_count: 24, ..message() };
    let (_, counts, sent) = waiting(after(&trial, &honours(), Ending::Retry));
    assert_eq!((counts, sent), (false, Sent::AsBefore));
    let (_, counts, sent) = waiting(after(&trial, &honours(), Ending::Unknown));
    assert_eq!((counts, sent), (false, Sent::Maybe));
    let silent = Probed::Silent("it is down".to_owned());
    let asked = after_probe(&trial, &answers(), &silent, at(1.0)).unwrap();
    let (_, counts, sent) = waiting(asked);
    assert_eq!((counts, sent), (false, Sent::AsBefore));
}

#[test]
fn a_destination_that_was_asked_decides_or_is_asked_again_or_is_given_up() {
    let doubtful = ClaimedMessage { maybe_sent_at: Some(ago(HOUR)), ..message() };
    let receipt = Receipt { provider_id: Some("pay_1".to_owned()) };
    let happened = after_probe(&doubtful, &answers(), &Probed::Happened(receipt.clone()), at(1.0));
    assert_eq!(happened, Some(Next::Delivered(receipt)));
    assert_eq!(after_probe(&doubtful, &answers(), &Probed::NotHappened, at(1.0)), None);
    let silent = Probed::Silent("it is down".to_owned());
    let again = after_probe(&doubtful, &answers(), &silent, at(1.0)).unwrap();
    assert_eq!(waiting(again), (SECOND, true, Sent::AsBefore));
    let last = ClaimedMessage { delivery_count: 24, ..doubtful };
    assert!(matches!(after_probe(&last, &answers(), &silent, at(1.0)), Some(Next::Unknown(_))));
}

#[test]
fn what_was_proven_absent_and_then_not_sent_is_free_of_doubt() {
    let doubtful = ClaimedMessage { maybe_sent_at: Some(ago(HOUR)), ..message() };
    let retry = delivered(Ending::Retry);
    let next = after_delivery(&doubtful, &answers(), &retry, true, at(1.0));
    assert_eq!(waiting(next).2, Sent::No);
}
