//! Settling by an operator's or a probe's statement, with an audit entry.

use firstwrite_core::protocol::{self, Completed, Force, Settled, Settlement};
use firstwrite_core::{AuditEntry, Policy, Request, Verdict};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal, is_note};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("settle", MINIMUM, what_happened_is_replayed_from_then_on),
    case!("settle", MINIMUM, what_is_proven_not_to_have_happened_runs_afresh),
    case!("settle", MINIMUM, what_was_found_out_about_one_attempt_settles_no_other),
    case!("settle", MINIMUM, what_was_found_before_a_record_was_given_up_anew_frees_nothing),
    case!("settle", MINIMUM, a_completed_record_is_not_settled_again),
    case!("settle", MINIMUM, a_live_attempt_is_not_settled_without_force),
    case!("settle", MINIMUM, a_live_attempt_settled_by_force_comes_too_late),
];

async fn what_happened_is_replayed_from_then_on(harness: Harness) -> TestResult {
    let request = uncertain(&harness).await?;
    let settled = settle(&harness, &request, happened("it is in the books"), Force::No).await?;
    expect_equal("the settlement", &settled, &Settled::Done)?;
    match harness.refused(&request, &Policy::default()).await? {
        Verdict::Replay { outcome, .. } => {
            let wanted = sample::outcome(201, "it is in the books");
            expect(outcome == wanted, "a retry gets the settled outcome")?;
        }
        verdict @ (Verdict::Fresh
        | Verdict::TakeOver { .. }
        | Verdict::InProgress { .. }
        | Verdict::Mismatch
        | Verdict::Uncertain
        | Verdict::Expired
        | Verdict::Unreadable) => {
            return Err(Failure::new(&format!("a replay instead of {verdict:?}")));
        }
    }
    let audits = harness.store().audits(request.id).await?;
    expect_equal("audit entries", &audits.len(), &2)?;
    let why = AuditEntry::uncertain("no answer");
    expect_equal("why nobody knew how it ended", &audits[0].entry, &why)
}

async fn what_is_proven_not_to_have_happened_runs_afresh(harness: Harness) -> TestResult {
    let request = uncertain(&harness).await?;
    let settled = settle(&harness, &request, Settlement::NotHappened, Force::No).await?;
    expect_equal("the settlement", &settled, &Settled::Done)?;
    expect(is_note(&harness.record(request.id).await?), "clients that poll are told")?;
    let _afresh = harness.granted(&request, &Policy::default(), 2).await?;
    let audits = harness.store().audits(request.id).await?;
    expect_equal("audit entries outlive the record", &audits.len(), &2)?;
    Ok(())
}

async fn what_was_found_out_about_one_attempt_settles_no_other(harness: Harness) -> TestResult {
    let request = uncertain(&harness).await?;
    let store = harness.store();
    let seen = harness.record(request.id).await?;
    let entry = sample::audit("proof");
    let free = || protocol::settle(&*store, &seen, Settlement::NotHappened, Force::Yes, &entry);
    expect_equal("the first finding", &free().await?, &Settled::Done)?;
    expect_equal("the same again", &free().await?, &Settled::Absent)?;
    let _heir = harness.granted(&request, &Policy::default(), 2).await?;
    expect_equal("the same, of another attempt", &free().await?, &Settled::Moved)?;
    expect(store.get(request.id).await?.is_some(), "the other attempt's record stands")
}

async fn what_was_found_before_a_record_was_given_up_anew_frees_nothing(
    harness: Harness,
) -> TestResult {
    let request = uncertain(&harness).await?;
    let store = harness.store();
    let seen = harness.record(request.id).await?;
    harness.advance(sample::TICK).await;
    let entry = sample::audit("compared");
    let marked = protocol::mark_given_up_now(&*store, &entry).await?;
    expect_equal("records that are marked", &marked, &1)?;
    let found = harness.record(request.id).await?;
    let settle =
        |record| protocol::settle(&*store, record, Settlement::NotHappened, Force::No, &entry);
    expect_equal("what was found before", &settle(&seen).await?, &Settled::Moved)?;
    expect_equal("the record stands", &harness.record(request.id).await?, &found)?;
    expect_equal("what was found since", &settle(&found).await?, &Settled::Done)
}

async fn a_completed_record_is_not_settled_again(harness: Harness) -> TestResult {
    let request = uncertain(&harness).await?;
    settle(&harness, &request, happened("first"), Force::No).await?;
    let before = harness.record(request.id).await?;
    for force in [Force::No, Force::Yes] {
        for settlement in [happened("second"), Settlement::NotHappened] {
            let settled = settle(&harness, &request, settlement, force).await?;
            expect_equal("a second settlement", &settled, &Settled::AlreadyCompleted)?;
        }
    }
    expect_equal("the record stands unchanged", &harness.record(request.id).await?, &before)?;
    let audits = harness.store().audits(request.id).await?;
    expect_equal("only what was done is written down", &audits.len(), &2)
}

async fn a_live_attempt_is_not_settled_without_force(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let _held = harness.granted(&request, &policy, 1).await?;
    harness.advance(sample::just_before(policy.lease)).await;
    let settled = settle(&harness, &request, Settlement::NotHappened, Force::No).await?;
    expect_equal("a live attempt", &settled, &Settled::StillHeld(sample::TICK))?;
    harness.advance(sample::TICK).await;
    let settled = settle(&harness, &request, Settlement::NotHappened, Force::No).await?;
    expect_equal("once its lease ran out", &settled, &Settled::Done)
}

async fn a_live_attempt_settled_by_force_comes_too_late(harness: Harness) -> TestResult {
    let (policy, request) = (Policy::default(), harness.request("k"));
    let held = harness.granted(&request, &policy, 1).await?;
    let settled = settle(&harness, &request, Settlement::NotHappened, Force::Yes).await?;
    expect_equal("the settlement", &settled, &Settled::Done)?;
    let outcome = sample::outcome(201, "late");
    let completed = protocol::complete(&*harness.store(), held, outcome)
        .await
        .map_err(|undone| undone.error)?;
    expect(matches!(completed, Completed::Late(Some(_))), "the live owner is told that it is late")
}

async fn uncertain(harness: &Harness) -> Result<Request, Failure> {
    let request = harness.request("k");
    let reservation = harness.granted(&request, &Policy::default(), 1).await?;
    protocol::mark_uncertain(&*harness.store(), reservation, "no answer").await?;
    Ok(request)
}

fn happened(text: &str) -> Settlement {
    Settlement::Happened { outcome: sample::outcome(201, text) }
}

async fn settle(
    harness: &Harness,
    request: &Request,
    settlement: Settlement,
    force: Force,
) -> Result<Settled, Failure> {
    let entry = sample::audit("proof");
    let store = harness.store();
    let Some(found) = store.get(request.id).await? else { return Ok(Settled::Absent) };
    Ok(protocol::settle(&*store, &found.record, settlement, force, &entry).await?)
}
