//! The export as CSV.

use firstwrite_provider::{Behaviour, Moment, Options, Provider};
use serde_json::json;

use crate::client::{get, pay, post};
use crate::stand::{Stand, noon};

const HEAD: &str = "id,idempotency_key,amount,currency,reference,created_at";

#[tokio::test]
async fn an_export_has_a_head_and_a_line_for_each_payment() {
    let stand = Stand::new(Behaviour::default()).await;
    pay("k-1", 500).send(stand.address()).await;
    let odd = r#"{"amount":7,"currency":"CHF","reference":"one, \"two\""}"#;
    post("/v1/payments", odd).send(stand.address()).await;
    let export = get("/v1/payments.csv").send(stand.address()).await;
    assert_eq!(export.header("content-type"), Some("text/csv; charset=utf-8"));
    let lines: Vec<_> = export.text().lines().collect();
    let told = [
        HEAD,
        "pay_00000001,k-1,500,EUR,order,2026-03-01T12:00:00.000Z",
        "pay_00000002,,7,CHF,\"one, \"\"two\"\"\",2026-03-01T12:00:00.000Z",
    ];
    assert_eq!(lines, told);
}

#[tokio::test]
async fn an_export_of_another_time_has_only_its_head() {
    let stand = Stand::new(Behaviour::default()).await;
    pay("k-1", 500).send(stand.address()).await;
    let path = "/v1/payments.csv?from=2026-03-02T00:00:00Z&until=2026-03-03T00:00:00Z";
    assert_eq!(get(path).send(stand.address()).await.text().trim_end(), HEAD);
}

#[tokio::test]
async fn a_long_export_is_whole() {
    // More than are put together at once.
    let count = 2_001;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let mut lines = String::new();
    for number in 1..=count {
        let line = json!({
            "entry": "made", "id": format!("pay_{number:08}"), "amount": number,
            "currency": "EUR", "reference": null, "idempotency_key": null,
            "created_at": Moment::from_millis(noon().as_millis() + number),
        });
        lines += &line.to_string();
        lines.push('\n');
    }
    std::fs::write(&path, lines).unwrap();
    let provider = Provider::start(Options::new(path)).await.unwrap();
    let export = get("/v1/payments.csv").send(provider.address()).await;
    let amounts = export.text().lines().skip(1);
    let amounts = amounts.map(|line| line.split(',').nth(2).unwrap().parse::<u64>().unwrap());
    assert!(amounts.eq(1..=count));
}
