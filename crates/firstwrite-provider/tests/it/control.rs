//! The behaviour, shown and changed from outside.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Chance, ErrorKind, Keys, Options, Provider};
use serde_json::json;

use crate::client::{get, pay, put};
use crate::stand::Stand;

#[tokio::test]
async fn a_behaviour_is_changed_from_outside_and_shown() {
    let stand = Stand::new(Behaviour::default()).await;
    let body = json!({
        "keys": { "forget_after": "1m" },
        "lose_answers": { "every": 3 },
        "fail_after_effect": { "probability": 0.25 },
        "delay": { "before_effect": "5ms" },
        "requests_per_second": 100,
    });
    let changed = put("/control", body.to_string()).send(stand.address()).await;
    assert_eq!(changed.status, 200);
    let behaviour = stand.provider.behaviour();
    assert_eq!(behaviour.keys, Keys::ForgetAfter(Duration::from_mins(1)));
    assert_eq!(behaviour.lose_answers, Chance::Every(3));
    assert_eq!(behaviour.delay.before_effect, Duration::from_millis(5));
    let shown = get("/control").send(stand.address()).await.json();
    assert_eq!(shown, changed.json());
    for (member, value) in body.as_object().unwrap() {
        let shown = if member == "delay" {
            json!({ "before_effect": shown["delay"]["before_effect"] })
        } else {
            shown[member].clone()
        };
        assert_eq!(shown, *value);
    }
}

#[tokio::test]
async fn a_behaviour_that_makes_no_sense_changes_nothing() {
    let stand = Stand::new(Behaviour { keys: Keys::Ignore, ..Behaviour::default() }).await;
    for body in [
        "nonsense",
        r#"{"loose_answers":"always"}"#,
        r#"{"lose_answers":{"probability":2}}"#,
        r#"{"lose_answers":{"every":0}}"#,
        r#"{"delay":{"before_effect":"1 year"}}"#,
        r#"{"webhooks":{"url":"http://example.com/","secret":"whsec_c2VjcmV0"}}"#,
        r#"{"webhooks":{"url":"http://127.0.0.1/","secret":"c2VjcmV0"}}"#,
    ] {
        let answer = put("/control", body).send(stand.address()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(!answer.text().contains("c2VjcmV0"), "{}", answer.text());
    }
    assert_eq!(stand.provider.behaviour().keys, Keys::Ignore);
}

#[tokio::test]
async fn calls_are_counted_by_kind() {
    let stand = Stand::new(Behaviour::default()).await;
    pay("k-1", 500).send(stand.address()).await;
    pay("k-1", 500).send(stand.address()).await;
    get("/v1/payments").send(stand.address()).await;
    get("/v1/payments?idempotency_key=k-1").send(stand.address()).await;
    get("/v1/payments/pay_00000001").send(stand.address()).await;
    get("/v1/payments.csv").send(stand.address()).await;
    get("/v1/elsewhere").send(stand.address()).await;
    let told = json!({
        "requests": {
            "create": 2, "fetch": 1, "by_key": 1, "list": 1, "export": 1, "other": 1,
            "met_outage": 0, "rate_limited": 0,
        },
        "webhooks": { "delivered": 0, "given_up": 0 },
    });
    assert_eq!(get("/control/requests").send(stand.address()).await.json(), told);
}

#[tokio::test]
async fn it_listens_on_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path().join("ledger.jsonl"));
    let everywhere = Options { listen: "0.0.0.0:0".parse().unwrap(), ..options };
    assert_eq!(Provider::start(everywhere).await.unwrap_err().kind(), ErrorKind::Listen);
}
