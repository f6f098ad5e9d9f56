//! Leases: how long a reservation lasts, and how a sweep treats expired ones.

use std::time::Duration;

use firstwrite_core::protocol::{self, Swept};
use firstwrite_core::{
    Change, Fence, Guard, OnLostAnswer, Policy, Query, RecordId, State, StateFilter, StateKind,
    Store, Verdict, judge,
};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal, is_note};
use crate::sample::{self, TICK};

pub(super) const CASES: &[Case] = &[
    case!("lease", MINIMUM, it_counts_from_the_stores_time),
    case!("lease", MINIMUM, a_renewal_counts_from_the_stores_time),
    case!("lease", MINIMUM, it_holds_until_the_last_millisecond_and_not_longer),
    case!("lease", MINIMUM, only_reserved_records_lapse),
    case!("lease", MINIMUM, a_renewed_lease_has_not_lapsed),
    case!("lease", MINIMUM, lapsed_respects_its_limit),
    case!("lease", MINIMUM, lapsed_ones_of_one_tenant_are_its_own),
    case!("lease", MINIMUM, a_sweep_frees_what_is_safe_and_marks_the_rest),
    case!("lease", MINIMUM, a_sweep_leaves_live_leases_alone),
    case!("lease", MINIMUM, a_sweep_comes_to_its_end),
    case!("lease", MINIMUM, an_uncertain_record_says_since_when_it_is),
];

/// More than any case writes: a store may show other cases' records too.
const PLENTY: usize = 1000;

async fn it_counts_from_the_stores_time(harness: Harness) -> TestResult {
    harness.advance(Duration::from_secs(11)).await;
    let now = harness.store().now().await?;
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let wanted = Some(now.plus(Policy::LEASE_DEFAULT));
    let found = harness.record(id).await?.state.lease_until();
    expect_equal("the lease ends its length after the store's now", &found, &wanted)
}

async fn a_renewal_counts_from_the_stores_time(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    harness.advance(Duration::from_secs(11)).await;
    let now = harness.store().now().await?;
    let renew = Change::Renew { lease_for: Duration::from_secs(40) };
    harness.store().swap(id, Guard::Owner(Fence::first(1)), renew, None).await?;
    let wanted = Some(now.plus(Duration::from_secs(40)));
    let found = harness.record(id).await?.state.lease_until();
    expect_equal("the lease ends its new length after the store's now", &found, &wanted)
}

async fn an_uncertain_record_says_since_when_it_is(harness: Harness) -> TestResult {
    let store = harness.store();
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    harness.advance(Duration::from_secs(11)).await;
    let since = store.now().await?;
    store.swap(id, Guard::Owner(Fence::first(1)), Change::MARK_UNCERTAIN, None).await?;
    harness.advance(Duration::from_hours(1)).await;
    let wanted = State::Uncertain { since };
    expect_equal("when the attempt was given up", &harness.record(id).await?.state, &wanted)?;
    let state = Some(StateFilter::Uncertain);
    let query = Query { tenant: Some(harness.tenant().clone()), state, after: None, limit: 9 };
    let listed: Vec<State> =
        store.list(&query).await?.records.into_iter().map(|record| record.state).collect();
    expect_equal("the same in a listing", &listed, &vec![wanted])
}

async fn it_holds_until_the_last_millisecond_and_not_longer(harness: Harness) -> TestResult {
    let policy = sample::policy(OnLostAnswer::Resend);
    let request = harness.request("k");
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Resend).await?;
    harness.advance(sample::just_before(policy.lease)).await;
    let found = harness.store().get(id).await?;
    let wanted = Verdict::InProgress { remaining: TICK };
    expect_equal("one millisecond before", &judge(found.as_ref(), &request), &wanted)?;
    expect(!has_lapsed(&harness, id).await?, "the lease holds one millisecond before its end")?;
    harness.advance(TICK).await;
    let found = harness.store().get(id).await?;
    let wanted = Verdict::TakeOver { from: Fence::first(1) };
    expect_equal("at its end", &judge(found.as_ref(), &request), &wanted)?;
    expect(has_lapsed(&harness, id).await?, "the lease has lapsed at its end")
}

async fn only_reserved_records_lapse(harness: Harness) -> TestResult {
    let reserved = harness.put_reserved("reserved", Fence::first(1), OnLostAnswer::Resend).await?;
    let uncertain = uncertain(&harness, "uncertain").await?;
    let completed = harness.put_completed("completed", Fence::first(1)).await?;
    harness.advance(Policy::RETENTION_DEFAULT * 3).await;
    let live = harness.put_reserved("live", Fence::first(1), OnLostAnswer::Resend).await?;
    expect(has_lapsed(&harness, reserved).await?, "a reserved record whose lease ran out lapses")?;
    for (id, what) in [(uncertain, "uncertain"), (completed, "completed"), (live, "live")] {
        expect(
            !has_lapsed(&harness, id).await?,
            &format!("a record that is {what} does not lapse"),
        )?;
    }
    Ok(())
}

async fn a_renewed_lease_has_not_lapsed(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    harness.advance(sample::just_before(Policy::LEASE_DEFAULT)).await;
    let renew = Change::Renew { lease_for: Policy::LEASE_DEFAULT };
    harness.store().swap(id, Guard::Owner(Fence::first(1)), renew, None).await?;
    harness.advance(sample::just_before(Policy::LEASE_DEFAULT)).await;
    expect(!has_lapsed(&harness, id).await?, "a renewed lease holds for its whole length again")
}

async fn lapsed_respects_its_limit(harness: Harness) -> TestResult {
    for at in 0..3 {
        let key = format!("k-{at}");
        harness.put_reserved(&key, Fence::first(1), OnLostAnswer::Resend).await?;
    }
    harness.advance(Policy::LEASE_DEFAULT).await;
    let page = harness.store().list(&Query::lapsed(2)).await?;
    expect_equal("no more than were asked for", &page.records.len(), &2)?;
    expect(page.next.is_none(), "a sweep asks for the first page again")
}

async fn lapsed_ones_of_one_tenant_are_its_own(harness: Harness) -> TestResult {
    for at in 0..3 {
        let key = sample::key(&format!("k-{at}"));
        let request = sample::request(&harness.other_tenant(), &key, 1);
        harness.put(&sample::reserved(&request, &Policy::default(), Fence::first(1))).await?;
    }
    harness.advance(Duration::from_mins(5)).await;
    let own = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Resend).await?;
    harness.advance(Policy::LEASE_DEFAULT).await;
    let query = Query { tenant: Some(harness.tenant().clone()), ..Query::lapsed(2) };
    let page = harness.store().list(&query).await?;
    let ids: Vec<RecordId> = page.records.iter().map(|record| record.id).collect();
    expect_equal("other tenants' leases neither show nor count", &ids, &vec![own])?;
    // What one tenant's page did not examine is found by the sweep all the same.
    let count = harness.store().list(&Query::lapsed(PLENTY)).await?.records.len();
    expect(count >= 4, "a sweep finds every tenant's")
}

async fn a_sweep_frees_what_is_safe_and_marks_the_rest(harness: Harness) -> TestResult {
    let safe = harness.put_reserved("safe", Fence::first(1), OnLostAnswer::Resend).await?;
    let unsafe_id =
        harness.put_reserved("unsafe", Fence::first(1), OnLostAnswer::Uncertain).await?;
    harness.advance(Policy::LEASE_DEFAULT).await;
    sweep_all(&*harness.store()).await?;
    let freed = harness.record(safe).await?;
    expect(is_note(&freed), "a key that is safe to run again is free, and its pollers are told")?;
    let next = harness.granted(&harness.request("safe"), &Policy::default(), 2).await?;
    expect_equal("the attempt after the note", &next.fence(), &Fence::first(1).next(2))?;
    let record = harness.record(unsafe_id).await?;
    expect_equal("the other waits for proof", &record.state.kind(), &StateKind::Uncertain)?;
    expect_equal("its owner may still say so", &record.fence, &Fence::first(1))
}

async fn a_sweep_leaves_live_leases_alone(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Resend).await?;
    let before = harness.record(id).await?;
    harness.advance(sample::just_before(Policy::LEASE_DEFAULT)).await;
    sweep_all(&*harness.store()).await?;
    expect_equal("a live lease is not swept", &harness.record(id).await?, &before)
}

async fn a_sweep_comes_to_its_end(harness: Harness) -> TestResult {
    for at in 0..5 {
        let key = format!("k-{at}");
        harness.put_reserved(&key, Fence::first(1), OnLostAnswer::Uncertain).await?;
    }
    harness.advance(Policy::LEASE_DEFAULT).await;
    let store = harness.store();
    for _ in 0..PLENTY {
        if protocol::sweep_once(&*store, 2).await? == Swept::default() {
            break;
        }
    }
    for at in 0..5 {
        let kind = harness.record(harness.request(&format!("k-{at}")).id).await?.state.kind();
        expect_equal("every lapsed record was swept, two at a time", &kind, &StateKind::Uncertain)?;
    }
    Ok(())
}

async fn uncertain(harness: &Harness, key: &str) -> Result<RecordId, Failure> {
    let id = harness.put_reserved(key, Fence::first(1), OnLostAnswer::Uncertain).await?;
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(id, guard, Change::MARK_UNCERTAIN, None).await?;
    Ok(id)
}

async fn has_lapsed(harness: &Harness, id: RecordId) -> Result<bool, Failure> {
    let page = harness.store().list(&Query::lapsed(PLENTY)).await?;
    Ok(page.records.iter().any(|record| record.id == id))
}

async fn sweep_all(store: &dyn Store) -> TestResult {
    protocol::sweep_once(store, PLENTY).await?;
    Ok(())
}
