//! Discrepancies: what is reported and what is true.

use firstwrite_provider::{Behaviour, ErrorKind, Foreign, Payment, Plant};
use serde_json::json;

use crate::client::{get, pay, post};
use crate::stand::Stand;

async fn stand() -> Stand {
    let stand = Stand::new(Behaviour::default()).await;
    for (key, amount) in [("a", 100), ("b", 200), ("c", 300)] {
        pay(key, amount).send(stand.address()).await;
    }
    stand
}

/// Number and amount.
fn brief(payments: &[Payment]) -> Vec<(&str, u64)> {
    payments
        .iter()
        .map(|payment| (payment.id.trim_start_matches("pay_0000000"), payment.amount))
        .collect()
}

fn id(number: usize) -> String {
    format!("pay_{number:08}")
}

#[tokio::test]
async fn a_removed_payment_is_as_if_it_had_never_happened() {
    let stand = stand().await;
    stand.provider.plant(Plant::Remove { id: id(2) }).await.unwrap();
    assert_eq!(brief(&stand.provider.reported()), [("1", 100), ("3", 300)]);
    assert_eq!(brief(&stand.provider.payments()), [("1", 100), ("2", 200), ("3", 300)]);
    assert_eq!(get("/v1/payments/pay_00000002").send(stand.address()).await.status, 404);
    let by_key = get("/v1/payments?idempotency_key=b").send(stand.address()).await.json();
    assert_eq!(by_key, json!({ "data": [], "next": null }));
    assert!(!get("/v1/payments.csv").send(stand.address()).await.text().contains(",b,"));
    // Its key is free.
    assert_eq!(pay("b", 200).send(stand.address()).await.id(), id(4));
}

#[tokio::test]
async fn a_duplicate_is_a_second_effect_under_the_same_key() {
    let stand = stand().await;
    let twin = stand.provider.plant(Plant::Duplicate { id: id(1) }).await.unwrap();
    assert_eq!((twin.id.as_str(), twin.amount), ("pay_00000004", 100));
    assert_eq!(twin.idempotency_key.as_deref(), Some("a"));
    let by_key = get("/v1/payments?idempotency_key=a").send(stand.address()).await.json();
    assert_eq!(by_key["data"].as_array().unwrap().len(), 2);
    assert_eq!(stand.provider.payments().len(), 4);
}

#[tokio::test]
async fn a_changed_amount_is_reported_everywhere() {
    let stand = stand().await;
    stand.provider.plant(Plant::ChangeAmount { id: id(1), amount: 999 }).await.unwrap();
    let one = get("/v1/payments/pay_00000001").send(stand.address()).await.json();
    let by_key = get("/v1/payments?idempotency_key=a").send(stand.address()).await.json();
    assert_eq!((&one["amount"], &by_key["data"][0]["amount"]), (&json!(999), &json!(999)));
    assert!(get("/v1/payments.csv").send(stand.address()).await.text().contains(",a,999,"));
    assert_eq!(stand.provider.payments()[0].amount, 100);
}

#[tokio::test]
async fn a_foreign_payment_is_reported_like_any_other() {
    let stand = stand().await;
    let foreign = Foreign {
        amount: 77,
        currency: "EUR".to_owned(),
        reference: Some("whose?".to_owned()),
        idempotency_key: None,
        created_at: Some("2026-02-01T00:00:00Z".parse().unwrap()),
    };
    stand.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
    let reported = stand.provider.reported();
    assert_eq!(brief(&reported), [("4", 77), ("1", 100), ("2", 200), ("3", 300)]);
}

#[tokio::test]
async fn plants_outlast_a_restart() {
    let stand = stand().await;
    stand.provider.plant(Plant::Remove { id: id(1) }).await.unwrap();
    stand.provider.plant(Plant::ChangeAmount { id: id(2), amount: 999 }).await.unwrap();
    stand.provider.plant(Plant::Duplicate { id: id(3) }).await.unwrap();
    let before = (stand.provider.payments(), stand.provider.reported());
    let stand = stand.restart().await;
    assert_eq!((stand.provider.payments(), stand.provider.reported()), before);
}

#[tokio::test]
async fn what_cannot_be_planted_is_refused() {
    let stand = stand().await;
    let before = stand.provider.reported();
    let foreign = Foreign {
        amount: 1,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some("k".repeat(300)),
        created_at: None,
    };
    for plant in [
        Plant::Remove { id: id(9) },
        Plant::Duplicate { id: "nonsense".to_owned() },
        Plant::ChangeAmount { id: id(1), amount: 0 },
        Plant::AddForeign(foreign),
    ] {
        let refused = stand.provider.plant(plant).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Plant);
    }
    assert_eq!(stand.provider.reported(), before);
}

#[tokio::test]
async fn plants_are_made_from_outside_too() {
    let stand = stand().await;
    for (body, status) in [
        (r#"{"plant":"remove","id":"pay_00000001"}"#, 201),
        (r#"{"plant":"remove","id":"pay_00000001"}"#, 400),
        (r#"{"plant":"duplicate","id":"pay_00000002"}"#, 201),
        (r#"{"plant":"change_amount","id":"pay_00000003","amount":5}"#, 201),
        (r#"{"plant":"add_foreign","amount":6,"currency":"EUR"}"#, 201),
        (r#"{"plant":"a tree"}"#, 400),
    ] {
        assert_eq!(
            post("/control/plant", body).send(stand.address()).await.status,
            status,
            "{body}"
        );
    }
    let reported = stand.provider.reported();
    assert_eq!(brief(&reported), [("2", 200), ("3", 5), ("4", 200), ("5", 6)]);
}
