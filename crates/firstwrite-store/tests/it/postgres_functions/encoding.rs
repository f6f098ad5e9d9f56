//! Keys, ids and outcomes are the same bytes in SQL and in Rust.

use bytes::Bytes;
use firstwrite_core::codec::hex;
use firstwrite_core::{DraftState, KeptHeaders, Key, Outcome, RecordId, Store as _, Tenant};
use http::{HeaderName, HeaderValue, StatusCode};

use super::in_schema;
use crate::shop::{Shop, draft_of, tenant};

/// Status, headers and body.
type Case<'a> = (u16, &'a [(&'a str, &'a str)], Option<&'a str>);

fn outcome(status: u16, headers: &[(&str, &str)], body: Option<&str>) -> Outcome {
    let pairs = headers.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
    });
    let (status, headers) =
        (StatusCode::from_u16(status).unwrap(), KeptHeaders::from_pairs(pairs.collect()));
    match body {
        Some(body) => Outcome::new(status, headers, Bytes::copy_from_slice(body.as_bytes())),
        None => Outcome::tombstone(status, headers),
    }
}

/// The bytes that a Rust store writes.
pub(super) async fn rust_bytes(outcome: Outcome) -> String {
    let shop = Shop::open();
    let state = DraftState::Completed { outcome };
    shop.store.insert(&draft_of(&tenant(), "k", state)).await.unwrap();
    shop.column("SELECT lower(hex(outcome)) FROM firstwrite_records").await.remove(0)
}

#[tokio::test]
async fn an_outcome_is_the_same_bytes_in_sql_and_in_rust() {
    let long = "v".repeat(300);
    let many: Vec<(&str, &str)> = vec![
        ("content-type", "text/csv"),
        ("content-type", "text/html; charset=utf-8"),
        ("etag", "\"7\""),
        ("x-shop", "ü, tab\there"),
        ("x-long", &long),
        ("link", "<a>"),
        ("link", "<b>"),
        ("content-language", ""),
        ("location", "/orders/1"),
    ];
    let cases: [Case<'_>; 6] = [
        (200, &[], Some("")),
        (201, &[("content-type", "application/json")], Some("{}")),
        (418, &[("content-type", "application/json; charset=utf-8")], Some("tea")),
        (422, &[("content-type", "application/problem+json")], None),
        (499, &many, Some("many")),
        (204, &[("content-type", "text/plain; charset=utf-8")], None),
    ];
    in_schema(async |schema| {
        let session = schema.connect().await;
        for (status, headers, body) in cases {
            let expected = rust_bytes(outcome(status, headers, body)).await;
            let written: Vec<String> = headers
                .iter()
                .map(|(name, value)| {
                    let escaped = value.replace('"', "\\\"").replace('\t', "\\t");
                    format!("[\"{name}\", \"{escaped}\"]")
                })
                .collect();
            let (written, body) = (
                format!("[{}]", written.join(", ")),
                body.map_or("null".to_owned(), |body| format!("'{body}'::bytea")),
            );
            let sql = format!(
                "WITH o AS (SELECT firstwrite.outcome_bytes({status}, '{written}', {body}) AS o)
                 SELECT encode(o, 'hex'), firstwrite.outcome_status(o),
                        firstwrite.outcome_headers(o), firstwrite.outcome_headers(o) = '{written}',
                        firstwrite.outcome_body(o) IS NOT DISTINCT FROM {body} FROM o"
            );
            let row = session.row(&sql).await;
            assert_eq!(row[0].as_deref(), Some(expected.as_str()), "{status} {written}");
            assert_eq!(row[1], Some(status.to_string()));
            assert_eq!(row[3].as_deref(), Some("t"), "{:?}", row[2]);
            assert_eq!(row[4].as_deref(), Some("t"), "{status}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_outcome_cut_short_or_of_another_version_is_refused_by_name() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let whole = session
            .value(
                "SELECT encode(firstwrite.outcome_bytes(418, '[[\"x-a\", \"1\"], [\"link\", \"<a>\"]]',
                                                        null), 'hex')",
            )
            .await;
        for end in 0..whole.len() / 2 {
            let cut = &whole[..end * 2];
            let read = format!("SELECT firstwrite.outcome_headers('\\x{cut}')");
            assert_eq!(session.code(&read).await, "FW005", "{cut}");
        }
        for damaged in ["200100", "10ff00", "10010145", "10010106", "1001ffffffffff"] {
            let read = format!("SELECT firstwrite.outcome_body('\\x{damaged}')");
            assert_eq!(session.code(&read).await, "FW005", "{damaged}");
        }
        for sealed in ["1402000102", "1602000102"] {
            let status = format!("SELECT firstwrite.outcome_status('\\x{sealed}')");
            assert_eq!(session.value(&status).await, "201", "{sealed}");
            let read = format!("SELECT firstwrite.outcome_body('\\x{sealed}')");
            assert_eq!(session.code(&read).await, "FW005", "{sealed}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_header_that_is_not_utf8_is_read_byte_by_byte() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let headers = session.value("SELECT firstwrite.outcome_headers('\\x10010105026fff')").await;
        assert_eq!(headers, r#"[["link", "oÿ"]]"#);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_packed_only_if_it_is_a_canonical_uuid_and_reads_back() {
    let uuid = "018f2b6e-7c1d-7abc-8def-0123456789ab";
    let packed = format!("00{}", uuid.replace('-', ""));
    let upper = uuid.to_uppercase();
    in_schema(async |schema| {
        let session = schema.connect().await;
        for (key, expected) in [
            (uuid, packed),
            (&upper, hex::encode(upper.as_bytes())),
            (&uuid[1..], hex::encode(&uuid.as_bytes()[1..])),
            ("order-1", hex::encode(b"order-1")),
            ("seventeen-bytes-x", hex::encode(b"seventeen-bytes-x")),
        ] {
            let sql = format!(
                "SELECT encode(firstwrite.key_bytes('{key}'), 'hex'),
                        firstwrite.key_text(firstwrite.key_bytes('{key}')),
                        replace(firstwrite.record_id('acmé', '{key}')::text, '-', '')"
            );
            let id = RecordId::of(&Tenant::new("acmé").unwrap(), &Key::new(key).unwrap());
            let row = session.row(&sql).await;
            assert_eq!(row, [Some(expected), Some(key.to_owned()), Some(id.to_string())]);
        }
    })
    .await;
}
