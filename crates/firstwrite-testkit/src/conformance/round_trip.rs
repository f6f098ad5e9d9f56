//! Values are read back exactly as written, whatever they are.

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::{
    BodyForm, Draft, Fence, Fingerprint, Inserted, KeptHeaders, OnLostAnswer, Outcome, PartDigests,
    Policy, ProbeId, Query, Record, Request, SecretId,
};
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderValue, StatusCode};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("round_trip", MINIMUM, every_field_of_a_fingerprint),
    case!("round_trip", MINIMUM, repeated_headers_in_their_order),
    case!("round_trip", MINIMUM, header_values_beyond_ascii),
    case!("round_trip", MINIMUM, an_empty_body),
    case!("round_trip", MINIMUM, a_body_of_one_mebibyte),
    case!("round_trip", MINIMUM, a_body_that_is_not_text),
    case!("round_trip", MINIMUM, a_tombstone),
    case!("round_trip", MINIMUM, a_tenant_beyond_ascii),
    case!("round_trip", MINIMUM, the_longest_key_and_tenant),
    case!("round_trip", MINIMUM, keys_that_differ_only_in_case),
    case!("round_trip", MINIMUM, an_operation_of_any_text),
    case!("round_trip", MINIMUM, the_greatest_fence),
    case!("round_trip", MINIMUM, every_answer_to_a_lost_answer),
    case!("round_trip", MINIMUM, unusual_statuses),
];

async fn every_field_of_a_fingerprint(harness: Harness) -> TestResult {
    let digest: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 + 1).unwrap_or(0));
    let many: Vec<u8> = (0..128).collect();
    for (at, (form, parts)) in [
        (BodyForm::Raw, Vec::new()),
        (BodyForm::Canonical, vec![0, 255, 0, 1]),
        (BodyForm::Canonical, many),
    ]
    .into_iter()
    .enumerate()
    {
        let parts = PartDigests::from_bytes(&parts).expect("whole digests, at most 64 of them");
        let secret = Some(SecretId::from_bytes([0, 1, 0, 255, 7]));
        for (version, secret) in [(1, None), (2, None), (2, secret), (7, secret), (u8::MAX, None)] {
            let fingerprint = Fingerprint::from_stored(version, form, digest, parts.clone());
            let fingerprint = fingerprint.keyed_by(secret);
            let key = format!("k-{at}-{version}-{}", secret.is_some());
            let request = Request { fingerprint, ..harness.request(&key) };
            let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
            round_trip(&harness, &draft).await?;
        }
    }
    Ok(())
}

async fn repeated_headers_in_their_order(harness: Harness) -> TestResult {
    let headers = KeptHeaders::from_pairs(vec![
        (LINK, HeaderValue::from_static("<a>; rel=x, <b>")),
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (LINK, HeaderValue::from_static("<c>")),
        (LINK, HeaderValue::from_static("")),
        (LINK, HeaderValue::from_static("<a>; rel=x, <b>")),
    ]);
    let outcome = Outcome::new(StatusCode::CREATED, headers, Bytes::from_static(b"{}"));
    kept(&harness, "k", outcome).await
}

async fn header_values_beyond_ascii(harness: Harness) -> TestResult {
    let value =
        HeaderValue::from_bytes(b"caf\xe9 \"quoted\"\t\xff").expect("opaque bytes are allowed");
    let headers = KeptHeaders::from_pairs(vec![(LINK, value)]);
    kept(&harness, "k", Outcome::new(StatusCode::OK, headers, Bytes::new())).await
}

async fn an_empty_body(harness: Harness) -> TestResult {
    kept(&harness, "k", sample::outcome(204, "")).await
}

async fn a_body_of_one_mebibyte(harness: Harness) -> TestResult {
    let body: Vec<u8> =
        (0..1024 * 1024_u32).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    kept(&harness, "k", Outcome::new(StatusCode::OK, KeptHeaders::default(), body.into())).await
}

async fn a_body_that_is_not_text(harness: Harness) -> TestResult {
    let body = Bytes::from_static(b"\x00\xff\xfe'\"\\\xc3\x28\r\n\x00");
    kept(&harness, "k", Outcome::new(StatusCode::OK, KeptHeaders::default(), body)).await
}

async fn a_tombstone(harness: Harness) -> TestResult {
    kept(&harness, "k", Outcome::tombstone(StatusCode::OK, KeptHeaders::default())).await
}

async fn a_tenant_beyond_ascii(harness: Harness) -> TestResult {
    for suffix in ["müller", "株式会社", "o'neil; drop table", "a%_b", "\u{1f980}"] {
        let tenant = sample::tenant(&format!("{}{suffix}", harness.tenant()));
        let request = sample::request(&tenant, &sample::key("k"), 1);
        let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
        round_trip(&harness, &draft).await?;
    }
    Ok(())
}

async fn the_longest_key_and_tenant(harness: Harness) -> TestResult {
    let mut name = harness.tenant().to_string();
    name.push_str(&"t".repeat(255_usize.saturating_sub(name.len())));
    let request = sample::request(&sample::tenant(&name), &sample::key(&"~".repeat(255)), 1);
    let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
    round_trip(&harness, &draft).await
}

async fn keys_that_differ_only_in_case(harness: Harness) -> TestResult {
    for key in ["order", "ORDER", "Order", "order'--", "order\\"] {
        let draft = sample::reserved(&harness.request(key), &Policy::default(), Fence::first(1));
        round_trip(&harness, &draft).await?;
    }
    Ok(())
}

async fn an_operation_of_any_text(harness: Harness) -> TestResult {
    let long = format!("POST /{}", "segment/".repeat(100));
    for (at, operation) in
        ["", "POST /payments/{id}", "PATCH /größe/'\"\\", &long].iter().enumerate()
    {
        let operation: Arc<str> = Arc::from(*operation);
        let request = Request { operation, ..harness.request(&format!("k-{at}")) };
        let draft = sample::reserved(&request, &Policy::default(), Fence::first(1));
        round_trip(&harness, &draft).await?;
    }
    Ok(())
}

async fn the_greatest_fence(harness: Harness) -> TestResult {
    for (at, number) in [1_u64 << 40, (1 << 62) + 12_345, (1 << 63) - 1].into_iter().enumerate() {
        let request = harness.request(&format!("k-{at}"));
        let fence = Fence::from_u64(number);
        round_trip(&harness, &sample::reserved(&request, &Policy::default(), fence)).await?;
    }
    Ok(())
}

async fn every_answer_to_a_lost_answer(harness: Harness) -> TestResult {
    let probe = OnLostAnswer::Ask(ProbeId::of(&["https://api.example", "/payments?key={key}"]));
    for on_lost_answer in [OnLostAnswer::Uncertain, OnLostAnswer::Resend, probe] {
        let request = harness.request(&format!("{on_lost_answer:?}"));
        let policy = sample::policy(on_lost_answer);
        round_trip(&harness, &sample::reserved(&request, &policy, Fence::first(1))).await?;
    }
    Ok(())
}

async fn unusual_statuses(harness: Harness) -> TestResult {
    for status in [200_u16, 299, 304, 422, 499, 999] {
        kept(&harness, &format!("k-{status}"), sample::outcome(status, "x")).await?;
    }
    Ok(())
}

async fn kept(harness: &Harness, key: &str, outcome: Outcome) -> TestResult {
    let request = harness.request(key);
    let draft = sample::completed(&request, &Policy::default(), Fence::first(1), outcome.clone());
    round_trip(harness, &draft).await?;
    // The other way an outcome is written: over a reservation.
    let request = harness.request(&format!("{key}-later"));
    let policy = Policy::default();
    let reservation = harness.granted(&request, &policy, 1).await?;
    firstwrite_core::protocol::complete(&*harness.store(), reservation, outcome.clone())
        .await
        .map_err(|undone| undone.error)?;
    match harness.record(request.id).await?.state {
        firstwrite_core::State::Completed { outcome: found, .. } => {
            expect_equal("the outcome as it was completed", &found, &outcome)?;
            expect_bodies(&found, &outcome)
        }
        firstwrite_core::State::Reserved(_) | firstwrite_core::State::Uncertain { .. } => {
            Err(Failure::new("a completed record"))
        }
    }
}

/// Debug output hides bodies, so a difference in them needs words of its own.
fn expect_bodies(found: &Outcome, wanted: &Outcome) -> TestResult {
    super::expect(found.body == wanted.body, "the body byte for byte")
}

/// Writes `draft` and reads it back in every way there is.
async fn round_trip(harness: &Harness, draft: &Draft) -> TestResult {
    let store = harness.store();
    let now = harness.put(draft).await?;
    let wanted = Record::from_draft(draft, now);
    expect_equal("the record as it was written", &harness.record(draft.id).await?, &wanted)?;
    let Inserted::Stands(found) = store.insert(draft).await? else {
        return Err(Failure::new("the record stands in the way of a second insert"));
    };
    expect_equal("the record as an insert returns it", &found.record, &wanted)?;
    let query = Query { tenant: Some(draft.tenant.clone()), state: None, after: None, limit: 1000 };
    let page = store.list(&query).await?;
    let listed = page.records.into_iter().find(|record| record.id == draft.id);
    expect_equal("the record as a listing shows it", &listed, &Some(wanted))
}
