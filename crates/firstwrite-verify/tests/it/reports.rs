//! What people and machines read, as reviewed.

use std::time::Duration;

use firstwrite_verify::{Report, Tenants, verify};

use crate::bed::{Bed, Defect};
use crate::named;

/// A run of a few checks with some of every verdict, without what differs from run to run.
async fn report() -> Report {
    let bed = Bed::start(Some(Defect::NoBodyComparison)).await;
    let mut plan = named::plan(&bed, 7);
    plan.only =
        ["other-body", "key-missing", "tenant-independence", "race-effects", "retention-over"]
            .map(str::to_owned)
            .to_vec();
    plan.other_tenant = Tenants::One;
    let mut report = verify(plan, |_| {}).await.expect("the bed answers");
    report.target = String::from("http://127.0.0.1:8080/<orders>");
    report.effects = String::from("`/count` of http://127.0.0.1:8080/count");
    report.took = Duration::from_millis(1234);
    for finding in &mut report.findings {
        finding.sent = without_keys(&finding.sent);
        finding.found = without_keys(&finding.found);
    }
    for (number, exchange) in (0_u32..).zip(&mut report.exchanges) {
        exchange.began = Duration::from_millis(10) * number;
        exchange.sent = exchange.began + Duration::from_millis(5);
        exchange.heard = exchange.sent + Duration::from_millis(20);
    }
    report
}

/// Keys and ids are drawn anew in every run.
fn without_keys(text: &str) -> String {
    let mut shown = Vec::new();
    let mut rest = text;
    while let Some((before, drawn)) = rest.split_once("Idempotency-Key: \"") {
        let (_, after) = drawn.split_once('"').expect("keys are quoted");
        shown.push(format!("{before}Idempotency-Key: \"…\""));
        rest = after;
    }
    let mut parts = rest.split("ord_");
    shown.extend(parts.next().map(str::to_owned));
    shown.extend(parts.map(|part| format!("ord_…{}", &part[16..])));
    shown.concat()
}

#[tokio::test]
async fn json_is_as_reviewed() {
    let document: serde_json::Value = serde_json::from_str(&report().await.to_json()).unwrap();
    let shape: Vec<String> = document["checks"].as_array().unwrap().iter().map(shape).collect();
    assert_eq!(
        shape,
        [
            "key-missing passed ",
            "race-effects passed ",
            "other-body failed major",
            "tenant-independence does not apply ",
            "retention-over not asked ",
        ]
    );
    assert_eq!((&document["version"], &document["seed"]), (&1.into(), &7.into()));
}

fn shape(check: &serde_json::Value) -> String {
    let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text("id"), text("verdict"), text("severity"))
}

#[tokio::test]
async fn junit_is_as_reviewed() {
    insta::assert_snapshot!("junit", report().await.to_junit());
}

/// One page that loads nothing and lets nothing out of its place.
#[tokio::test]
async fn a_page_holds_everything_and_needs_nothing() {
    let page = report().await.to_html();
    for expected in [
        "aria-label=\"grade C\"",
        "http://127.0.0.1:8080/&lt;orders&gt;",
        "<h3>✗ other-body <small>(major)</small></h3>",
        "store a fingerprint of the request",
        "<svg viewBox",
        "request 10",
        "not asked",
    ] {
        assert!(page.contains(expected), "{expected} in {page}");
    }
    for never in ["<script", "<link", "src=", "url(", "@import", "<orders>"] {
        assert!(!page.contains(never), "{never}");
    }
}
