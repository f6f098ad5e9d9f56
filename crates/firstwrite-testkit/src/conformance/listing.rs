//! Listing records page by page.

use firstwrite_core::{
    Change, Fence, Guard, OnLostAnswer, Page, Policy, Query, RecordId, StateFilter, StateKind,
};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("listing", MINIMUM, pages_are_complete_and_in_the_order_of_ids),
    case!("listing", MINIMUM, a_full_last_page_has_no_next),
    case!("listing", MINIMUM, it_filters_by_state),
    case!("listing", MINIMUM, it_shows_one_tenant_only_its_own),
    case!("listing", MINIMUM, it_says_the_stores_time),
    case!("listing", MINIMUM, a_record_in_between_repeats_nothing),
    case!("listing", MINIMUM, any_limit_is_answered),
];

async fn pages_are_complete_and_in_the_order_of_ids(harness: Harness) -> TestResult {
    let ids = write(&harness, 10).await?;
    for limit in [1, 2, 3, 4, 7, 10, 11] {
        let listed = walk(&harness, limit).await?;
        expect_equal(&format!("every record once, {limit} a page"), &listed, &ids)?;
    }
    Ok(())
}

async fn a_full_last_page_has_no_next(harness: Harness) -> TestResult {
    write(&harness, 4).await?;
    let page = list(&harness, None, None, 4).await?;
    expect_equal("records on the page", &page.records.len(), &4)?;
    expect(page.next.is_none(), "nothing comes after the last record")?;
    let page = list(&harness, None, None, 3).await?;
    let last = page.records.last().map(|record| record.id);
    expect_equal("the next page starts after the last record", &page.next, &last)
}

async fn it_filters_by_state(harness: Harness) -> TestResult {
    let reserved = harness.put_reserved("r", Fence::first(1), OnLostAnswer::Resend).await?;
    let uncertain = harness.put_reserved("u", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(uncertain, guard, Change::MARK_UNCERTAIN, None).await?;
    let completed = harness.put_completed("c", Fence::first(1)).await?;
    for (state, id) in [
        (StateKind::Reserved, reserved),
        (StateKind::Uncertain, uncertain),
        (StateKind::Completed, completed),
    ] {
        let page = list(&harness, Some(state.into()), None, 10).await?;
        let ids: Vec<RecordId> = page.records.iter().map(|record| record.id).collect();
        expect_equal(&format!("only what is {state}"), &ids, &vec![id])?;
    }
    Ok(())
}

async fn it_shows_one_tenant_only_its_own(harness: Harness) -> TestResult {
    let ids = write(&harness, 3).await?;
    for at in 0..3 {
        let key = sample::key(&format!("k-{at}"));
        let request = sample::request(&harness.other_tenant(), &key, 1);
        harness.put(&sample::reserved(&request, &Policy::default(), Fence::first(1))).await?;
    }
    expect_equal("this tenant's records only", &walk(&harness, 2).await?, &ids)?;
    let everybody = Query { tenant: None, state: None, after: None, limit: Query::LIMIT_MAX };
    let count = harness.store().list(&everybody).await?.records.len();
    expect(count >= 6, "an operator's listing shows every tenant's")
}

async fn it_says_the_stores_time(harness: Harness) -> TestResult {
    write(&harness, 1).await?;
    harness.advance(sample::TICK * 1234).await;
    let page = list(&harness, None, None, 10).await?;
    expect_equal("the time of the page", &page.now, &harness.store().now().await?)
}

async fn a_record_in_between_repeats_nothing(harness: Harness) -> TestResult {
    let ids = write(&harness, 6).await?;
    let first = list(&harness, None, None, 3).await?;
    // Wherever they land, what was shown is not shown again and what stands is not left out.
    for at in 0..6 {
        let key = format!("later-{at}");
        harness.put_reserved(&key, Fence::first(1), OnLostAnswer::Resend).await?;
    }
    let second = list(&harness, None, first.next, 100).await?;
    let shown = |id: &RecordId| {
        let on = |page: &Page| page.records.iter().filter(|record| record.id == *id).count();
        on(&first) + on(&second)
    };
    expect(ids.iter().all(|id| shown(id) == 1), "each of the first records is shown once")
}

async fn any_limit_is_answered(harness: Harness) -> TestResult {
    write(&harness, 2).await?;
    let page = list(&harness, None, None, usize::MAX).await?;
    expect_equal("records under a boundless limit", &page.records.len(), &2)?;
    let page = list(&harness, None, None, 0).await?;
    expect(page.records.len() <= 1, "a limit of nothing shows at most one record")
}

/// Writes records; returns their ids in order.
async fn write(harness: &Harness, count: usize) -> Result<Vec<RecordId>, Failure> {
    let mut ids = Vec::new();
    for at in 0..count {
        let key = format!("k-{at}");
        ids.push(harness.put_reserved(&key, Fence::first(1), OnLostAnswer::Resend).await?);
    }
    ids.sort_unstable();
    Ok(ids)
}

/// All ids of the tenant, page by page.
async fn walk(harness: &Harness, limit: usize) -> Result<Vec<RecordId>, Failure> {
    let (mut ids, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let page = list(harness, None, after, limit).await?;
        expect(page.records.len() <= limit, "a page holds no more than its limit")?;
        ids.extend(page.records.iter().map(|record| record.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(ids),
        }
    }
    Err(Failure::new("a listing comes to its end"))
}

async fn list(
    harness: &Harness,
    state: Option<StateFilter>,
    after: Option<RecordId>,
    limit: usize,
) -> Result<Page, Failure> {
    let query = Query { tenant: Some(harness.tenant().clone()), state, after, limit };
    Ok(harness.store().list(&query).await?)
}
