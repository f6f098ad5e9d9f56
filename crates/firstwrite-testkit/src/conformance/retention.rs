//! Retention: how long an outcome is replayed, and when its record may be deleted.

use std::time::Duration;

use firstwrite_core::protocol::{self, Force, Settlement};
use firstwrite_core::{
    AfterRetention, Change, Fence, Guard, OnLostAnswer, Outcome, Policy, RecordId, State, Store,
    Verdict, judge,
};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample::{self, TICK};

pub(super) const CASES: &[Case] = &[
    case!("retention", MINIMUM, it_counts_from_the_completion),
    case!("retention", MINIMUM, an_outcome_is_replayed_until_the_last_millisecond),
    case!("retention", MINIMUM, an_expired_record_is_taken_over_and_runs_as_new),
    case!("retention", MINIMUM, a_spent_key_is_refused_while_the_policy_remembers_it),
    case!("retention", MINIMUM, nothing_is_reaped_before_kept_until),
    case!("retention", MINIMUM, what_is_past_kept_until_is_reaped),
    case!("retention", MINIMUM, reserved_and_uncertain_records_are_never_reaped),
    case!("retention", MINIMUM, a_reap_respects_its_limit),
    case!("retention", MINIMUM, it_stands_with_the_reservation_through_every_state),
    case!("retention", MINIMUM, a_released_attempt_may_leave_a_note_and_its_key_is_free),
];

/// No case waits for more turns than this.
const TURNS_MAX: usize = 1000;

async fn it_counts_from_the_completion(harness: Harness) -> TestResult {
    let policy = Policy::default();
    let request = harness.request("k");
    let reservation = harness.granted(&request, &policy, 1).await?;
    harness.advance(Duration::from_secs(20)).await;
    let now = harness.store().now().await?;
    let outcome = sample::outcome(201, "done");
    protocol::complete(&*harness.store(), reservation, outcome.clone())
        .await
        .map_err(|undone| undone.error)?;
    let wanted = State::completed(outcome, policy.record_retention(), now);
    expect_equal("both deadlines", &harness.record(request.id).await?.state, &wanted)
}

async fn an_outcome_is_replayed_until_the_last_millisecond(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let id = harness.put_completed("k", Fence::first(1)).await?;
    harness.advance(sample::just_before(policy.retention)).await;
    let found = harness.store().get(id).await?;
    let verdict = judge(found.as_ref(), &request);
    expect(matches!(verdict, Verdict::Replay { .. }), "a replay one millisecond before the end")?;
    harness.advance(TICK).await;
    let found = harness.store().get(id).await?;
    let verdict = judge(found.as_ref(), &request);
    let wanted = Verdict::TakeOver { from: Fence::first(1) };
    expect_equal("the key is free at the end of retention", &verdict, &wanted)
}

async fn an_expired_record_is_taken_over_and_runs_as_new(harness: Harness) -> TestResult {
    let policy = Policy::default();
    let id = harness.put_completed("k", Fence::first(1)).await?;
    harness.advance(policy.retention).await;
    let other = sample::request(harness.tenant(), &sample::key("k"), 77);
    let reservation = harness.granted(&other, &policy, 2).await?;
    let record = harness.record(id).await?;
    expect_equal("the new attempt's fence", &record.fence, &reservation.fence())?;
    expect_equal("the new request", &record.fingerprint, &other.fingerprint)?;
    expect(record.state.lease_until().is_some(), "the record is reserved again")
}

async fn a_spent_key_is_refused_while_the_policy_remembers_it(harness: Harness) -> TestResult {
    let remember_for = Duration::from_hours(48);
    let policy = Policy::default().after_retention(AfterRetention::Refuse(remember_for));
    let request = harness.request("k");
    let outcome = sample::outcome(201, "k");
    harness.put(&sample::completed(&request, &policy, Fence::first(1), outcome)).await?;
    harness.advance(sample::just_before(policy.retention + remember_for)).await;
    reap_all(&*harness.store()).await?;
    let verdict = harness.refused(&request, &policy).await?;
    expect_equal("a spent key", &verdict, &Verdict::Expired)?;
    harness.advance(TICK).await;
    reap_all(&*harness.store()).await?;
    let _afresh = harness.granted(&request, &policy, 2).await?;
    Ok(())
}

async fn it_stands_with_the_reservation_through_every_state(harness: Harness) -> TestResult {
    let policy = sample::policy(OnLostAnswer::Uncertain)
        .retention(Duration::from_hours(7))
        .after_retention(AfterRetention::Refuse(Duration::from_hours(70)));
    let (store, request) = (harness.store(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    let kept = policy.record_retention();
    expect_equal("of a reservation", &harness.record(request.id).await?.retention, &kept)?;
    protocol::mark_uncertain(&*store, reservation, "no answer").await?;
    let record = harness.record(request.id).await?;
    expect_equal("of an uncertain record", &record.retention, &kept)?;
    let outcome = sample::outcome(201, "settled");
    let happened = Settlement::Happened { outcome: outcome.clone() };
    let now = store.now().await?;
    protocol::settle(&*store, &record, happened, Force::No, &sample::audit("proof")).await?;
    let record = harness.record(request.id).await?;
    expect_equal("of a completed record", &record.retention, &kept)?;
    expect_equal("its deadlines", &record.state, &State::completed(outcome, kept, now))?;
    harness.advance(policy.retention).await;
    let verdict = harness.refused(&request, &Policy::default()).await?;
    expect_equal("a spent key, whatever the policy says by now", &verdict, &Verdict::Expired)
}

async fn a_released_attempt_may_leave_a_note_and_its_key_is_free(harness: Harness) -> TestResult {
    let policy =
        Policy::default().after_retention(AfterRetention::Refuse(Duration::from_hours(70)));
    let request = harness.request("k");
    let reservation = harness.granted(&request, &policy, 1).await?;
    let status = http::StatusCode::INTERNAL_SERVER_ERROR;
    let noted_for = Duration::from_hours(1);
    let owned = (reservation.id(), reservation.fence());
    protocol::release_noted(&*harness.store(), owned, status, noted_for).await?;
    let State::Completed { outcome, .. } = harness.record(request.id).await?.state else {
        return Err(Failure::new("a note of the release"));
    };
    expect_equal("the note", &outcome, &Outcome::released(status))?;
    let other = sample::request(harness.tenant(), &sample::key("k"), 77);
    let _afresh = harness.granted(&other, &policy, 2).await?;
    Ok(())
}

async fn nothing_is_reaped_before_kept_until(harness: Harness) -> TestResult {
    let policy = Policy::default();
    let id = harness.put_completed("k", Fence::first(1)).await?;
    for step in [policy.retention, sample::just_before(policy.slack)] {
        harness.advance(step).await;
        reap_all(&*harness.store()).await?;
        expect(harness.store().get(id).await?.is_some(), "a record stays until kept_until")?;
    }
    Ok(())
}

async fn what_is_past_kept_until_is_reaped(harness: Harness) -> TestResult {
    let policy = Policy::default();
    let id = harness.put_completed("k", Fence::first(1)).await?;
    harness.advance(policy.retention + policy.slack).await;
    let reaped = reap_all(&*harness.store()).await?;
    expect(reaped >= 1, "a reap counts what it deletes")?;
    expect(harness.store().get(id).await?.is_none(), "a record past kept_until is deleted")
}

async fn reserved_and_uncertain_records_are_never_reaped(harness: Harness) -> TestResult {
    let reserved = harness.put_reserved("r", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let uncertain = harness.put_reserved("u", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(uncertain, guard, Change::MARK_UNCERTAIN, None).await?;
    harness.advance(Policy::RETENTION_DEFAULT * 400).await;
    reap_all(&*harness.store()).await?;
    for (id, what) in [(reserved, "reserved"), (uncertain, "uncertain")] {
        let stands = harness.store().get(id).await?.is_some();
        expect(stands, &format!("a record that is {what} is kept, however old it is"))?;
    }
    Ok(())
}

async fn a_reap_respects_its_limit(harness: Harness) -> TestResult {
    let mut ids: Vec<RecordId> = Vec::new();
    for at in 0..5 {
        ids.push(harness.put_completed(&format!("k-{at}"), Fence::first(1)).await?);
    }
    let policy = Policy::default();
    harness.advance(policy.retention + policy.slack).await;
    let store = harness.store();
    let mut left = ids.len();
    for _ in 0..TURNS_MAX {
        let reaped = store.reap(2).await?;
        expect(reaped <= 2, "a reap deletes no more than its limit")?;
        let mut now_left = 0;
        for id in &ids {
            now_left += usize::from(store.get(*id).await?.is_some());
        }
        expect(left - now_left <= reaped, "a reap counts what it deletes")?;
        left = now_left;
        if left == 0 {
            return Ok(());
        }
    }
    Err(Failure::new("turn by turn, everything past kept_until is reaped"))
}

async fn reap_all(store: &dyn Store) -> Result<usize, Failure> {
    let mut count = 0;
    for _ in 0..TURNS_MAX {
        match store.reap(100).await? {
            0 => return Ok(count),
            reaped => count += reaped,
        }
    }
    Err(Failure::new("a reap comes to its end"))
}
