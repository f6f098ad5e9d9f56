//! Only the store's clock decides; clients' clocks are never read.

use std::time::Duration;

use firstwrite_core::protocol;
use firstwrite_core::{Policy, State, Verdict};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("clock_skew", MINIMUM, every_answer_carries_the_same_clock),
    case!("clock_skew", MINIMUM, a_jump_of_the_stores_clock_moves_every_deadline),
    case!("clock_skew", MINIMUM, the_reservation_tells_the_stores_deadline),
    case!("clock_skew", MINIMUM, a_lease_beyond_the_end_of_time_holds),
];

async fn every_answer_carries_the_same_clock(harness: Harness) -> TestResult {
    harness.advance(Duration::from_hours(5)).await;
    let store = harness.store();
    let now = store.now().await?;
    let id = harness.put_completed("k", firstwrite_core::Fence::first(1)).await?;
    let Some(found) = store.get(id).await? else {
        return Err(Failure::new("a record stands under the key"));
    };
    expect_equal("the time of a get", &found.now, &now)?;
    expect_equal("the time of creation", &found.record.created_at, &now)?;
    harness.advance(Duration::from_millis(1)).await;
    let later = store.now().await?;
    expect_equal("the clock moved as told", &later, &now.plus(Duration::from_millis(1)))
}

async fn a_jump_of_the_stores_clock_moves_every_deadline(harness: Harness) -> TestResult {
    // The application's own clock says that seconds have passed; only the store's counts.
    harness.advance(Duration::from_hours(24 * 365)).await;
    let (policy, request) = (Policy::default(), harness.request("k"));
    let reservation = harness.granted(&request, &policy, 1).await?;
    let now = harness.store().now().await?;
    let until = harness.record(request.id).await?.state.lease_until();
    expect_equal("the lease's end", &until, &Some(now.plus(policy.lease)))?;
    let outcome = sample::outcome(201, "x");
    protocol::complete(&*harness.store(), reservation, outcome.clone())
        .await
        .map_err(|undone| undone.error)?;
    let wanted = State::completed(outcome, policy.record_retention(), now);
    expect_equal("retention's end", &harness.record(request.id).await?.state, &wanted)
}

async fn the_reservation_tells_the_stores_deadline(harness: Harness) -> TestResult {
    harness.advance(Duration::from_secs(3)).await;
    let (policy, request) = (Policy::default(), harness.request("k"));
    let mut reservation = harness.granted(&request, &policy, 1).await?;
    let stands = harness.record(request.id).await?.state.lease_until();
    expect_equal("the granted deadline", &stands, &Some(reservation.lease_until()))?;
    harness.advance(Duration::from_secs(3)).await;
    protocol::renew(&*harness.store(), &mut reservation).await?;
    let stands = harness.record(request.id).await?.state.lease_until();
    expect_equal("the renewed deadline", &stands, &Some(reservation.lease_until()))
}

async fn a_lease_beyond_the_end_of_time_holds(harness: Harness) -> TestResult {
    let policy = Policy::default().lease(Duration::MAX);
    let request = harness.request("k");
    let _held = harness.granted(&request, &policy, 1).await?;
    harness.advance(Duration::from_hours(24 * 365 * 100)).await;
    let verdict = harness.refused(&request, &policy).await?;
    expect(matches!(verdict, Verdict::InProgress { .. }), "an endless lease does not overflow")
}
