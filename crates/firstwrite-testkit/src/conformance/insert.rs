//! Writing where nothing stands.

use std::time::Duration;

use firstwrite_core::{
    Change, Draft, DraftState, Fence, Guard, Inserted, OnLostAnswer, Policy, Record, State, Swapped,
};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("insert", MINIMUM, a_free_key_is_written_at_the_stores_time),
    case!("insert", MINIMUM, what_stands_is_returned_with_the_stores_time),
    case!("insert", MINIMUM, a_second_draft_changes_nothing),
    case!("insert", MINIMUM, a_key_nobody_used_has_nothing),
    case!("insert", MINIMUM, two_tenants_use_one_key_independently),
    case!("insert", MINIMUM, of_many_at_once_one_wins),
    case!("insert", MINIMUM, a_copy_is_as_old_as_its_original),
];

async fn a_free_key_is_written_at_the_stores_time(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
    let before = harness.store().now().await?;
    let now = harness.put(&draft).await?;
    expect_equal("an insert says the store's time", &now, &before)?;
    let record = harness.record(request.id).await?;
    expect_equal("the record is the draft at that time", &record, &Record::from_draft(&draft, now))
}

/// A copy of another store's record keeps its age, and its lease and retention begin now.
async fn a_copy_is_as_old_as_its_original(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let (policy, fence) = (Policy::default(), Fence::first(1));
    let (lease_for, asked_ago) = (policy.lease, Duration::from_hours(30));
    let state = DraftState::Reserved { lease_for, asked_ago };
    let draft = Draft { state, ..sample::reserved(&request, &policy, fence) };
    let before = harness.store().now().await?;
    let now = harness.put(&draft).await?;
    expect_equal("an insert says the store's time", &now, &before)?;
    let record = harness.record(request.id).await?;
    expect_equal("the record", &record, &Record::from_draft(&draft, now))?;
    expect_equal("its age", &now.since(record.created_at), &asked_ago)?;
    let (outcome, retention) = (sample::outcome(201, "done"), policy.record_retention());
    let change = Change::Complete { outcome: outcome.clone(), retention };
    let swapped = harness.store().swap(request.id, Guard::Owner(fence), change, None).await?;
    expect(matches!(swapped, Swapped::Done(_)), "the copy is completed")?;
    let completed = harness.record(request.id).await?;
    expect_equal("its age then", &now.since(completed.created_at), &asked_ago)?;
    let state = State::completed(outcome, retention, now);
    expect_equal("its retention begins now", &completed.state, &state)
}

async fn what_stands_is_returned_with_the_stores_time(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
    let written = harness.put(&draft).await?;
    harness.advance(Duration::from_secs(5)).await;
    let second = sample::reserved(&request, &Policy::default(), Fence::first(2));
    let Inserted::Stands(found) = harness.store().insert(&second).await? else {
        return Err(Failure::new("an insert where something stands is refused"));
    };
    expect_equal("what stands", &found.record, &Record::from_draft(&draft, written))?;
    let wanted = written.plus(Duration::from_secs(5));
    expect_equal("the store's time of the refusal", &found.now, &wanted)
}

async fn a_second_draft_changes_nothing(harness: Harness) -> TestResult {
    let id = harness.put_completed("k", Fence::first(1)).await?;
    let before = harness.record(id).await?;
    let second = sample::reserved(&harness.request("k"), &Policy::default(), Fence::first(2));
    harness.store().insert(&second).await?;
    expect_equal("the first record stands unchanged", &harness.record(id).await?, &before)
}

async fn a_key_nobody_used_has_nothing(harness: Harness) -> TestResult {
    harness.put_reserved("used", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let found = harness.store().get(harness.request("unused").id).await?;
    expect(found.is_none(), "nothing stands under a key that nobody used")?;
    let audits = harness.store().audits(harness.request("unused").id).await?;
    expect(audits.is_empty(), "no audit entry stands under a key that nobody used")
}

async fn two_tenants_use_one_key_independently(harness: Harness) -> TestResult {
    let (mine, theirs) =
        (harness.request("k"), sample::request(&harness.other_tenant(), &sample::key("k"), 2));
    harness.put(&sample::reserved(&mine, &Policy::default(), Fence::first(1))).await?;
    harness.put(&sample::reserved(&theirs, &Policy::default(), Fence::first(2))).await?;
    let record = harness.record(theirs.id).await?;
    expect_equal("the other tenant's record is its own", &record.tenant, &theirs.tenant)?;
    let record = harness.record(mine.id).await?;
    expect_equal("this tenant's record is untouched", &record.fence, &Fence::first(1))
}

async fn of_many_at_once_one_wins(harness: Harness) -> TestResult {
    const RIVALS: u64 = 8;
    let request = harness.request("k");
    let attempts: Vec<_> = (0..RIVALS)
        .map(|nonce| {
            let store = harness.store();
            let draft = sample::reserved(&request, &Policy::default(), Fence::first(nonce));
            tokio::spawn(async move { store.insert(&draft).await })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        let inserted = attempt.await.map_err(Failure::panicked)??;
        winners += usize::from(matches!(inserted, Inserted::Done(_)));
    }
    expect_equal("of eight inserts at once, winners", &winners, &1)
}
