//! Late writers are refused.

use firstwrite_core::protocol::{self, Completed, Renewed, Reservation};
use firstwrite_core::{Body, OnLostAnswer, Policy, State, StateKind};

use super::{Case, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("fence", MINIMUM, it_grows_with_a_take_over),
    case!("fence", MINIMUM, a_late_owner_cannot_complete),
    case!("fence", MINIMUM, a_late_owner_cannot_free_its_successors_key),
    case!("fence", MINIMUM, a_late_owner_cannot_renew),
    case!("fence", MINIMUM, a_late_owner_cannot_make_its_successor_uncertain),
    case!("fence", MINIMUM, a_former_lifes_fence_is_refused),
    case!("fence", MINIMUM, a_swept_attempts_fence_is_refused),
];

fn resend() -> Policy {
    sample::policy(OnLostAnswer::Resend)
}

async fn it_grows_with_a_take_over(harness: Harness) -> TestResult {
    let request = harness.request("k");
    // The higher nonce goes first: the take-over count alone must decide.
    let first = harness.granted(&request, &resend(), u64::MAX).await?;
    harness.advance(resend().lease).await;
    let second = harness.granted(&request, &resend(), 0).await?;
    expect(second.fence() > first.fence(), "the fence of a take-over is greater")?;
    let record = harness.record(request.id).await?;
    expect_equal("the record wears the new fence", &record.fence, &second.fence())
}

async fn a_late_owner_cannot_complete(harness: Harness) -> TestResult {
    let (request, store) = (harness.request("k"), harness.store());
    let late = harness.granted(&request, &resend(), 1).await?;
    harness.advance(resend().lease).await;
    let successor = harness.granted(&request, &resend(), 2).await?;
    let outcome = sample::outcome(201, "late");
    let completed = protocol::complete(&*store, late, outcome).await;
    let completed = completed.map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Late(Some(_))), "the late owner is told so")?;
    let outcome = sample::outcome(201, "right");
    let completed = protocol::complete(&*store, successor, outcome).await;
    let completed = completed.map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Kept { .. }), "its successor completes")
}

async fn a_late_owner_cannot_free_its_successors_key(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let late = harness.granted(&request, &resend(), 1).await?;
    harness.advance(resend().lease).await;
    let successor = harness.granted(&request, &resend(), 2).await?;
    protocol::release(&*harness.store(), late).await?;
    let record = harness.record(request.id).await?;
    expect_equal("the successor's record stands", &record.fence, &successor.fence())
}

async fn a_late_owner_cannot_renew(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let mut late = harness.granted(&request, &resend(), 1).await?;
    harness.advance(resend().lease).await;
    let successor = harness.granted(&request, &resend(), 2).await?;
    harness.advance(sample::TICK).await;
    let renewed = protocol::renew(&*harness.store(), &mut late).await?;
    expect_equal("the late owner's renewal", &renewed, &Renewed::Lost)?;
    let until = harness.record(request.id).await?.state.lease_until();
    expect_equal("the successor's lease", &until, &Some(successor.lease_until()))
}

async fn a_late_owner_cannot_make_its_successor_uncertain(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let late = harness.granted(&request, &resend(), 1).await?;
    harness.advance(resend().lease).await;
    let _successor = harness.granted(&request, &resend(), 2).await?;
    protocol::mark_uncertain(&*harness.store(), late, "no answer").await?;
    let kind = harness.record(request.id).await?.state.kind();
    expect_equal("the successor's record", &kind, &StateKind::Reserved)
}

async fn a_former_lifes_fence_is_refused(harness: Harness) -> TestResult {
    let (request, store) = (harness.request("k"), harness.store());
    let former = harness.granted(&request, &resend(), 1).await?;
    protocol::withdraw(&*store, request.id, former.fence()).await?;
    expect(store.get(request.id).await?.is_none(), "nothing is left of the former life")?;
    let present = harness.granted(&request, &resend(), 2).await?;
    let counts = (former.fence().count(), present.fence().count());
    expect_equal("both are first attempts", &counts, &(1, 1))?;
    comes_too_late(&harness, former).await
}

async fn a_swept_attempts_fence_is_refused(harness: Harness) -> TestResult {
    let (request, store) = (harness.request("k"), harness.store());
    let former = harness.granted(&request, &resend(), 1).await?;
    harness.advance(resend().lease).await;
    protocol::sweep_once(&*store, 1000).await?;
    let left = harness.record(request.id).await?.state;
    let is_note =
        matches!(&left, State::Completed { outcome, .. } if outcome.body == Body::Released);
    expect(is_note, "the sweep freed the key and left a note")?;
    let _present = harness.granted(&request, &resend(), 2).await?;
    comes_too_late(&harness, former).await
}

/// Completes `former` while a later attempt holds the key.
async fn comes_too_late(harness: &Harness, former: Reservation) -> TestResult {
    let id = harness.request("k").id;
    let outcome = sample::outcome(201, "former");
    let completed = protocol::complete(&*harness.store(), former, outcome).await;
    let completed = completed.map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Late(Some(_))), "the former owner is told")?;
    let kind = harness.record(id).await?.state.kind();
    expect_equal("the present record", &kind, &StateKind::Reserved)
}
