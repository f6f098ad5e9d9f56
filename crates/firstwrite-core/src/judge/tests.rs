//! Tables over the protocol: every state, every time, every fingerprint, every policy.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::*;
use crate::{
    AfterRetention, BodyForm, Change, DraftState, Fingerprint, FingerprintRules, KeptHeaders,
    Lease, PartDigests, Parts, Policy, StateKind,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const FENCE: Fence = Fence::first(7);

fn at(offset: i64) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() + offset)
}

fn request(body: &str) -> Request {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::parse("order-1").unwrap());
    let id = RecordId::of(&tenant, &key);
    let parts = Parts {
        method: &Method::POST,
        authority: "api.example",
        path: "/payments",
        query: None,
        headers: &HeaderMap::new(),
        body: body.as_bytes(),
    };
    let fingerprint = Fingerprint::of(&parts, &FingerprintRules::default(), None, &id);
    Request { id, tenant, key, operation: "POST /payments".into(), fingerprint }
}

fn outcome() -> Outcome {
    Outcome::new(StatusCode::CREATED, KeptHeaders::default(), Bytes::from_static(b"made"))
}

/// Reads `reserved -1`, `completed +1`, `uncertain`: a state and when its deadline is, in
/// milliseconds from now.
fn state(given: &str) -> Option<State> {
    let (kind, deadline) = given.split_once(' ').unwrap_or((given, "0"));
    let deadline = at(deadline.parse().unwrap());
    match kind {
        "nothing" => None,
        "reserved" => Some(State::Reserved(Lease { until: deadline })),
        "completed" => Some(State::Completed {
            outcome: outcome(),
            retained_until: deadline,
            kept_until: deadline.plus(Duration::from_hours(1)),
        }),
        "sealed" => Some(State::Completed {
            outcome: Outcome::sealed(StatusCode::CREATED, Bytes::from_static(b"\x01sealed")),
            retained_until: deadline,
            kept_until: deadline.plus(Duration::from_hours(1)),
        }),
        "released" => Some(State::Completed {
            outcome: Outcome::released(StatusCode::INTERNAL_SERVER_ERROR),
            retained_until: deadline,
            kept_until: deadline.plus(Duration::from_hours(1)),
        }),
        "uncertain" => Some(State::Uncertain { since: at(-1) }),
        other => panic!("no such state: {other}"),
    }
}

fn found(given: &str, on_lost_answer: OnLostAnswer) -> Option<Found> {
    let first = request("first");
    state(given).map(|state| Found {
        now: NOW,
        record: Record {
            id: first.id,
            tenant: first.tenant,
            key: first.key,
            operation: first.operation,
            fingerprint: first.fingerprint,
            fence: FENCE,
            on_lost_answer,
            retention: Policy::default().record_retention(),
            created_at: at(-500),
            state,
        },
    })
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Fresh => "fresh".to_owned(),
        Verdict::TakeOver { from } => format!("take over from {}", from.count()),
        Verdict::Replay { outcome, .. } => format!("replay {}", outcome.status.as_u16()),
        Verdict::InProgress { remaining } => format!("in progress for {}ms", remaining.as_millis()),
        Verdict::Mismatch => "mismatch".to_owned(),
        Verdict::Uncertain => "uncertain".to_owned(),
        Verdict::Expired => "expired".to_owned(),
        Verdict::Unreadable => "unreadable".to_owned(),
    }
}

/// `given` stands, and a request with `body` comes under the default policy but for what is named.
fn check(given: &str, body: &str, expected: &str) {
    check_with(given, body, OnLostAnswer::Uncertain, AfterRetention::Fresh, expected);
}

fn check_with(
    given: &str,
    body: &str,
    on_lost_answer: OnLostAnswer,
    after_retention: AfterRetention,
    expected: &str,
) {
    let mut found = found(given, on_lost_answer);
    if let Some(found) = &mut found {
        found.record.retention =
            Policy::default().after_retention(after_retention).record_retention();
    }
    let verdict = judge(found.as_ref(), &request(body));
    assert_eq!(in_words(&verdict), expected, "{given}, body {body}");
}

const REMEMBER: AfterRetention = AfterRetention::Refuse(Duration::from_hours(1));

#[test]
fn nothing_under_the_key_is_fresh() {
    check("nothing", "first", "fresh");
    check("nothing", "other", "fresh");
}

#[test]
fn a_completed_record_replays_until_its_retention_ends() {
    check("completed +1", "first", "replay 201");
    check("completed +0", "first", "take over from 1");
    check("completed -1", "first", "take over from 1");
}

#[test]
fn nobody_is_answered_with_what_is_sealed() {
    check("sealed +1", "first", "unreadable");
    check("sealed +1", "other", "mismatch");
    check("sealed +0", "first", "take over from 1");
}

#[test]
fn a_different_request_never_gets_a_stored_outcome() {
    check("completed +1", "other", "mismatch");
}

#[test]
fn a_different_request_is_wrong_whether_or_not_the_first_has_ended() {
    check("reserved +1", "other", "mismatch");
    check("reserved -1", "other", "mismatch");
    check("uncertain", "other", "mismatch");
    check_with("reserved -1", "other", OnLostAnswer::Resend, AfterRetention::Fresh, "mismatch");
}

#[test]
fn after_retention_a_key_is_free_for_any_request() {
    check("completed -1", "other", "take over from 1");
}

#[test]
fn a_note_of_a_release_leaves_the_key_free_for_any_request() {
    for given in ["released +1", "released +0", "released -1"] {
        for body in ["first", "other"] {
            check(given, body, "take over from 1");
            check_with(given, body, OnLostAnswer::Uncertain, REMEMBER, "take over from 1");
        }
    }
}

#[test]
fn a_record_that_remembers_its_spent_key_refuses_it() {
    let lost = OnLostAnswer::Uncertain;
    check_with("completed +1", "first", lost, REMEMBER, "replay 201");
    check_with("completed +0", "first", lost, REMEMBER, "expired");
    check_with("completed -1", "other", lost, REMEMBER, "expired");
}

#[test]
fn a_lease_holds_until_the_instant_it_ends() {
    check("reserved +1", "first", "in progress for 1ms");
    check("reserved +0", "first", "uncertain");
}

#[test]
fn an_expired_lease_is_taken_over_only_where_running_again_is_safe() {
    check("reserved -1", "first", "uncertain");
    check_with(
        "reserved -1",
        "first",
        OnLostAnswer::Resend,
        AfterRetention::Fresh,
        "take over from 1",
    );
}

#[test]
fn what_a_lapsed_lease_means_was_fixed_when_the_key_was_reserved() {
    // The operation may have been reconfigured since; the attempt ran under the old promise.
    let reserved = found("reserved -1", OnLostAnswer::Uncertain);
    assert_eq!(judge(reserved.as_ref(), &request("first")), Verdict::Uncertain);
}

#[test]
fn an_uncertain_record_is_never_run_again_by_itself() {
    check("uncertain", "first", "uncertain");
    check_with("uncertain", "first", OnLostAnswer::Resend, AfterRetention::Fresh, "uncertain");
}

#[test]
fn a_record_of_a_newer_version_is_neither_run_nor_called_a_mismatch() {
    for given in ["reserved +1", "reserved -1", "completed +1", "uncertain"] {
        let mut found = found(given, OnLostAnswer::Resend).unwrap();
        let version = Fingerprint::VERSION + 1;
        found.record.fingerprint =
            Fingerprint::from_stored(version, BodyForm::Raw, [0; 32], PartDigests::default());
        let verdict = judge(Some(&found), &request("first"));
        assert_eq!(verdict, Verdict::Unreadable, "{given}");
    }
}

#[test]
fn a_sweep_makes_the_same_choice_as_a_request() {
    let lapsed = |given: &str, on_lost_answer| {
        let found = found(given, on_lost_answer).unwrap();
        judge_lapsed(&found.record, found.now)
    };
    for on_lost_answer in [OnLostAnswer::Uncertain, OnLostAnswer::Resend] {
        for untouched in ["reserved +1", "completed -1", "completed +1", "uncertain"] {
            assert_eq!(lapsed(untouched, on_lost_answer), None, "{untouched}");
        }
    }
    assert_eq!(lapsed("reserved +0", OnLostAnswer::Resend), Some(Change::free_given_up()));
    assert_eq!(lapsed("reserved +0", OnLostAnswer::Uncertain), Some(Change::MARK_UNCERTAIN));
}

#[test]
fn an_orphan_is_swept_however_long_its_lease() {
    for (on_lost_answer, change) in [
        (OnLostAnswer::Resend, Change::free_given_up()),
        (OnLostAnswer::Uncertain, Change::MARK_UNCERTAIN),
    ] {
        let orphan = |given| judge_orphan(&found(given, on_lost_answer).unwrap().record);
        assert_eq!(orphan("reserved +1"), Some(change.clone()));
        assert_eq!(orphan("reserved +0"), Some(change));
        for untouched in ["completed -1", "completed +1", "uncertain"] {
            assert_eq!(orphan(untouched), None, "{untouched}");
        }
    }
}

#[test]
fn a_draft_becomes_the_state_it_describes() {
    let reserved = DraftState::reserved(Duration::from_millis(5));
    let retention = Policy::default().record_retention();
    let state = State::from_draft(&reserved, retention, NOW);
    assert_eq!(state, State::Reserved(Lease { until: at(5) }));
    let completed = DraftState::Completed { outcome: outcome() };
    let state = State::from_draft(&completed, retention, NOW);
    assert_eq!(state.kind(), StateKind::Completed);
    let State::Completed { retained_until, kept_until, .. } = state else { unreachable!() };
    assert_eq!(retained_until, NOW.plus(Policy::RETENTION_DEFAULT));
    assert_eq!(kept_until, retained_until.plus(Policy::SLACK_DEFAULT));
}
