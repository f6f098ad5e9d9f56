//! Counting what stands for each tenant, page by page.

use std::collections::BTreeMap;

use bytes::Bytes;
use firstwrite_core::{
    AfterRetention, Change, Fence, Guard, KeptHeaders, OnLostAnswer, Outcome, Policy, Query,
    RecordId, Tenant, Usage, UsagePage,
};
use http::header::{HeaderName, HeaderValue};
use http::{StatusCode, header};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("usage", MINIMUM, sums_are_those_of_a_listing_whatever_the_page),
    case!("usage", MINIMUM, two_tenants_are_not_mixed),
    case!("usage", MINIMUM, every_state_counts),
    case!("usage", MINIMUM, bodies_count_as_they_were_given),
    case!("usage", MINIMUM, a_completion_adds_bytes_and_no_key),
    case!("usage", MINIMUM, what_is_freed_or_reaped_no_longer_counts),
    case!("usage", MINIMUM, a_spent_key_counts_while_it_is_remembered),
    case!("usage", MINIMUM, any_limit_is_answered),
];

/// Largest number of bytes that a store may add to an outcome's headers and body: framing and encryption.
const FRAMING_MAX: u64 = 256;
/// Largest number of bytes that a store may save by abbreviating common content to one byte.
const ABBREVIATED_MAX: u64 = 64;

async fn sums_are_those_of_a_listing_whatever_the_page(harness: Harness) -> TestResult {
    for at in 0..7_usize {
        put(&harness, harness.tenant(), &format!("k-{at}"), &[b'x'; 1000][..at * 100]).await?;
    }
    harness.put_reserved("r", Fence::first(1), OnLostAnswer::Resend).await?;
    let listed = listed(&harness, harness.tenant()).await?;
    expect_equal("keys that are listed", &listed.keys, &8)?;
    let mut first = None;
    for limit in [1, 2, 3, 7, 8, 9, 1000] {
        let counted = walk(&harness, limit).await?.remove(harness.tenant()).unwrap_or_default();
        expect_equal(&format!("keys, {limit} a page"), &counted.keys, &listed.keys)?;
        expect_close(&format!("bytes, {limit} a page"), counted, listed.bytes)?;
        let first = *first.get_or_insert(counted);
        expect_equal("the same sum whatever the page", &counted, &first)?;
    }
    Ok(())
}

async fn two_tenants_are_not_mixed(harness: Harness) -> TestResult {
    let other = harness.other_tenant();
    for at in 0..4 {
        put(&harness, harness.tenant(), &format!("k-{at}"), &[1; 500]).await?;
    }
    put(&harness, &other, "k-0", &[2; 9000]).await?;
    for limit in [1, 3, 1000] {
        let mut counted = walk(&harness, limit).await?;
        let mine = counted.remove(harness.tenant()).unwrap_or_default();
        let theirs = counted.remove(&other).unwrap_or_default();
        expect_equal("keys of each", &(mine.keys, theirs.keys), &(4, 1))?;
        expect_close("bytes of one", mine, 4 * 500)?;
        expect_close("bytes of the other", theirs, 9000)?;
    }
    Ok(())
}

async fn every_state_counts(harness: Harness) -> TestResult {
    harness.put_reserved("r", Fence::first(1), OnLostAnswer::Resend).await?;
    let uncertain = harness.put_reserved("u", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(uncertain, guard, Change::MARK_UNCERTAIN, None).await?;
    expect_equal("what is under way", &mine(&harness).await?, &Usage { keys: 2, bytes: 0 })?;
    put(&harness, harness.tenant(), "c", &[7; 700]).await?;
    let request = harness.request("t");
    let tombstone = Outcome::tombstone(StatusCode::CREATED, KeptHeaders::default());
    harness
        .put(&sample::completed(&request, &Policy::default(), Fence::first(1), tombstone))
        .await?;
    let counted = mine(&harness).await?;
    expect_equal("a completed key, and one whose answer was not kept", &counted.keys, &4)?;
    expect_close("bytes of what was kept", counted, 700)
}

async fn bodies_count_as_they_were_given(harness: Harness) -> TestResult {
    // A store may compress what compresses well; what a tenant uses up must not depend on it.
    let (even, odd) = (vec![b'a'; 100_000], (0..100_000_u32).map(scattered).collect::<Vec<u8>>());
    put(&harness, harness.tenant(), "even", &even).await?;
    expect_close("a body of one letter", mine(&harness).await?, 100_000)?;
    put(&harness, harness.tenant(), "odd", &odd).await?;
    expect_close("a body without a pattern", mine(&harness).await?, 200_000)?;
    let link = HeaderValue::from_bytes(&[b'l'; 3000]).map_err(|_value| unusable())?;
    let headers = KeptHeaders::from_pairs(vec![
        (header::LINK, link),
        (HeaderName::from_static("x-payment-id"), HeaderValue::from_static("7")),
    ]);
    let outcome = Outcome::new(StatusCode::CREATED, headers, Bytes::new());
    let request = harness.request("headers");
    harness.put(&sample::completed(&request, &Policy::default(), Fence::first(1), outcome)).await?;
    expect_close("headers", mine(&harness).await?, 203_000)
}

async fn a_completion_adds_bytes_and_no_key(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    complete(&harness, id, &[3; 4000]).await?;
    let counted = mine(&harness).await?;
    expect_equal("one key", &counted.keys, &1)?;
    expect_close("the outcome's bytes", counted, 4000)
}

async fn what_is_freed_or_reaped_no_longer_counts(harness: Harness) -> TestResult {
    let freed = harness.put_reserved("freed", Fence::first(1), OnLostAnswer::Resend).await?;
    let ended = harness.put_reserved("ended", Fence::first(1), OnLostAnswer::Resend).await?;
    put(&harness, harness.tenant(), "at-once", &[1; 3000]).await?;
    complete(&harness, ended, &[2; 3000]).await?;
    harness.store().swap(freed, Guard::Owner(Fence::first(1)), Change::Remove, None).await?;
    let counted = mine(&harness).await?;
    expect_equal("a freed key does not count", &counted.keys, &2)?;
    expect_close("what was kept does", counted, 6000)?;
    let policy = Policy::default();
    harness.advance(policy.retention).await;
    expect_equal("past retention they still stand", &mine(&harness).await?, &counted)?;
    harness.advance(policy.slack).await;
    reap(&harness).await?;
    expect_equal("nothing is left", &mine(&harness).await?, &Usage::default())
}

async fn a_spent_key_counts_while_it_is_remembered(harness: Harness) -> TestResult {
    let remember_for = std::time::Duration::from_hours(48);
    let policy = Policy::default().after_retention(AfterRetention::Refuse(remember_for));
    let outcome = sample::outcome(201, "k");
    let request = harness.request("k");
    harness.put(&sample::completed(&request, &policy, Fence::first(1), outcome)).await?;
    harness.advance(sample::just_before(policy.retention + remember_for)).await;
    reap(&harness).await?;
    expect_equal("a spent key", &mine(&harness).await?.keys, &1)?;
    harness.advance(policy.slack + sample::TICK).await;
    reap(&harness).await?;
    expect_equal("a forgotten key", &mine(&harness).await?, &Usage::default())
}

async fn any_limit_is_answered(harness: Harness) -> TestResult {
    for at in 0..3 {
        harness.put_completed(&format!("k-{at}"), Fence::first(1)).await?;
    }
    for limit in [0, 1, UsagePage::LIMIT_MAX, usize::MAX] {
        let counted = walk(&harness, limit).await?.remove(harness.tenant()).unwrap_or_default();
        expect_equal(&format!("keys with a limit of {limit}"), &counted.keys, &3)?;
    }
    let last = RecordId::from_bytes([255; 16]);
    let behind = harness.store().usage(Some(last), 10).await?;
    expect_equal("nothing is behind the last id", &behind, &UsagePage::default())
}

/// Writes a completed record with this body.
async fn put(harness: &Harness, tenant: &Tenant, key: &str, body: &[u8]) -> Result<(), Failure> {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let headers = KeptHeaders::from_pairs(vec![json]);
    let outcome = Outcome::new(StatusCode::CREATED, headers, Bytes::copy_from_slice(body));
    let request = sample::request(tenant, &sample::key(key), 1);
    let draft = sample::completed(&request, &Policy::default(), Fence::first(1), outcome);
    harness.put(&draft).await.map(drop)
}

async fn complete(harness: &Harness, id: RecordId, body: &[u8]) -> TestResult {
    let outcome =
        Outcome::new(StatusCode::OK, KeptHeaders::default(), Bytes::copy_from_slice(body));
    let change = Change::Complete { outcome, retention: Policy::default().record_retention() };
    harness.store().swap(id, Guard::Owner(Fence::first(1)), change, None).await?;
    Ok(())
}

/// Returns the usage of this case's tenant.
async fn mine(harness: &Harness) -> Result<Usage, Failure> {
    Ok(walk(harness, 1000).await?.remove(harness.tenant()).unwrap_or_default())
}

/// Sums the usage of every tenant, page by page.
async fn walk(harness: &Harness, limit: usize) -> Result<BTreeMap<Tenant, Usage>, Failure> {
    let (mut sums, mut after) = (BTreeMap::<Tenant, Usage>::new(), None);
    // Other cases may have left their records on the same database.
    for _ in 0..100_000 {
        let UsagePage { tenants, next } = harness.store().usage(after, limit).await?;
        let keys: u64 = tenants.iter().map(|(_, usage)| usage.keys).sum();
        expect(keys <= limit.max(1) as u64, "a page counts no more than its limit")?;
        let names: Vec<&Tenant> = tenants.iter().map(|(tenant, _)| tenant).collect();
        expect(names.is_sorted_by(|a, b| a < b), "each tenant once, in order")?;
        for (tenant, usage) in tenants {
            sums.entry(tenant).or_default().add(usage);
        }
        expect(next.is_none() || next > after, "the walk goes forward")?;
        match next {
            Some(next) => after = Some(next),
            None => return Ok(sums),
        }
    }
    Err(Failure::new("a walk comes to its end"))
}

/// Sums the usage of the tenant's records as listed.
async fn listed(harness: &Harness, tenant: &Tenant) -> Result<Usage, Failure> {
    let limit = Query::LIMIT_MAX;
    let query = Query { tenant: Some(tenant.clone()), state: None, after: None, limit };
    let mut sum = Usage::default();
    for record in harness.store().list(&query).await?.records {
        sum.add(record.usage());
    }
    Ok(sum)
}

/// Fails unless bytes are as many as wanted, but for the form in which a store writes them.
fn expect_close(what: &str, found: Usage, wanted: u64) -> TestResult {
    let least = wanted.saturating_sub(found.keys * ABBREVIATED_MAX);
    let most = wanted + found.keys * FRAMING_MAX;
    let holds = (least..=most).contains(&found.bytes);
    expect(holds, &format!("{what}: between {least} and {most}, but it is {}", found.bytes))
}

/// Deletes whatever may go.
async fn reap(harness: &Harness) -> TestResult {
    for _ in 0..1000 {
        if harness.store().reap(100).await? == 0 {
            return Ok(());
        }
    }
    Err(Failure::new("a reap comes to its end"))
}

/// Bytes that no compression shortens much.
fn scattered(number: u32) -> u8 {
    (number.wrapping_mul(2_654_435_761) ^ number.wrapping_mul(40_503) << 7).to_be_bytes()[1]
}

fn unusable() -> Failure {
    Failure::new("a header that can be sent")
}
