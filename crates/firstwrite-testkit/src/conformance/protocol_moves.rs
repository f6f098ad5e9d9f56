//! The protocol's moves, carried out over the store.

use firstwrite_core::protocol::{self, Completed, Renewed};
use firstwrite_core::{OnLostAnswer, Policy, StateKind, Verdict};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("protocol", MINIMUM, a_duplicate_meets_the_attempt_in_progress),
    case!("protocol", MINIMUM, a_completed_attempt_is_replayed),
    case!("protocol", MINIMUM, another_request_under_a_used_key_is_a_mismatch),
    case!("protocol", MINIMUM, a_released_key_runs_afresh),
    case!("protocol", MINIMUM, a_renewed_attempt_completes_after_its_first_lease),
    case!("protocol", MINIMUM, an_uncertain_key_stays_refused),
    case!("protocol", MINIMUM, a_lapsed_attempt_whose_effect_may_have_happened_is_uncertain),
    case!("protocol", MINIMUM, a_lapsed_attempt_that_is_safe_to_repeat_is_taken_over),
    case!("protocol", MINIMUM, an_owner_whose_lease_lapsed_unnoticed_still_completes),
];

async fn a_duplicate_meets_the_attempt_in_progress(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let _held = harness.granted(&request, &policy, 1).await?;
    let wanted = Verdict::InProgress { remaining: policy.lease };
    expect_equal("a duplicate", &harness.refused(&request, &policy).await?, &wanted)
}

async fn a_completed_attempt_is_replayed(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    let outcome = sample::outcome(201, "first");
    let completed = protocol::complete(&*harness.store(), reservation, outcome.clone())
        .await
        .map_err(|undone| undone.error)?;
    let Completed::Kept { retained_until } = completed else {
        return Err(Failure::new("the owner completes"));
    };
    let wanted = Verdict::Replay { outcome, retained_until };
    expect_equal("a retry", &harness.refused(&request, &policy).await?, &wanted)
}

async fn another_request_under_a_used_key_is_a_mismatch(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let other = sample::request(harness.tenant(), &sample::key("k"), 2);
    let reservation = harness.granted(&request, &policy, 1).await?;
    let verdict = harness.refused(&other, &policy).await?;
    expect_equal("while the first runs", &verdict, &Verdict::Mismatch)?;
    let outcome = sample::outcome(201, "first");
    protocol::complete(&*harness.store(), reservation, outcome)
        .await
        .map_err(|undone| undone.error)?;
    let verdict = harness.refused(&other, &policy).await?;
    expect_equal("after the first has ended", &verdict, &Verdict::Mismatch)
}

async fn a_released_key_runs_afresh(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    protocol::release(&*harness.store(), reservation).await?;
    let _afresh = harness.granted(&request, &policy, 2).await?;
    Ok(())
}

async fn a_renewed_attempt_completes_after_its_first_lease(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let mut reservation = harness.granted(&request, &policy, 1).await?;
    for _ in 0..5 {
        harness.advance(policy.lease / 2).await;
        let renewed = protocol::renew(&*harness.store(), &mut reservation).await?;
        expect_equal("a live owner's renewal", &renewed, &Renewed::Current)?;
        protocol::sweep_once(&*harness.store(), 1000).await?;
    }
    let until = harness.record(request.id).await?.state.lease_until();
    expect_equal("the lease", &until, &Some(reservation.lease_until()))?;
    let outcome = sample::outcome(201, "slow");
    let completed = protocol::complete(&*harness.store(), reservation, outcome)
        .await
        .map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Kept { .. }), "a slow attempt that renews completes")
}

async fn an_uncertain_key_stays_refused(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    protocol::mark_uncertain(&*harness.store(), reservation, "no answer").await?;
    harness.advance(policy.retention * 100).await;
    protocol::sweep_once(&*harness.store(), 1000).await?;
    harness.store().reap(1000).await?;
    let verdict = harness.refused(&request, &policy).await?;
    expect_equal("no time makes it safe", &verdict, &Verdict::Uncertain)
}

async fn a_lapsed_attempt_whose_effect_may_have_happened_is_uncertain(
    harness: Harness,
) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let _lost = harness.granted(&request, &policy, 1).await?;
    harness.advance(policy.lease).await;
    let verdict = harness.refused(&request, &policy).await?;
    expect_equal("a retry after the lease", &verdict, &Verdict::Uncertain)
}

async fn a_lapsed_attempt_that_is_safe_to_repeat_is_taken_over(harness: Harness) -> TestResult {
    let (policy, request) = (sample::policy(OnLostAnswer::Resend), harness.request("k"));
    let _lost = harness.granted(&request, &policy, 1).await?;
    harness.advance(policy.lease).await;
    let next = harness.granted(&request, &policy, 2).await?;
    expect_equal("the second attempt", &next.fence().count(), &2)
}

async fn an_owner_whose_lease_lapsed_unnoticed_still_completes(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    harness.advance(policy.lease * 10).await;
    protocol::sweep_once(&*harness.store(), 1000).await?;
    let outcome = sample::outcome(201, "late but true");
    let completed = protocol::complete(&*harness.store(), reservation, outcome)
        .await
        .map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Kept { .. }), "the owner knows what happened")?;
    let kind = harness.record(request.id).await?.state.kind();
    expect_equal("the record's state", &kind, &StateKind::Completed)
}
