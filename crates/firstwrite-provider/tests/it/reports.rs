//! Questions about payments.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Keys};
use serde_json::{Value, json};

use crate::client::{get, pay};
use crate::stand::Stand;

const SECOND: Duration = Duration::from_secs(1);

/// Five payments, a second apart; the third and the fifth under one key.
async fn stand() -> Stand {
    let stand = Stand::new(Behaviour { keys: Keys::Ignore, ..Behaviour::default() }).await;
    for (at, key) in ["a", "b", "same", "c", "same"].iter().enumerate() {
        pay(key, 500 + at as u64).send(stand.address()).await;
        stand.clock.advance(SECOND);
    }
    stand
}

async fn page(stand: &Stand, query: &str) -> (Vec<u64>, Option<String>) {
    let answer = get(format!("/v1/payments{query}")).send(stand.address()).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let json = answer.json();
    let amounts = json["data"].as_array().unwrap().iter();
    let amounts = amounts.map(|payment| payment["amount"].as_u64().unwrap()).collect();
    (amounts, json["next"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn a_payment_is_found_by_its_id() {
    let stand = stand().await;
    let found = get("/v1/payments/pay_00000002").send(stand.address()).await;
    assert_eq!((found.status, &found.json()["amount"]), (200, &json!(501)));
    let missing = get("/v1/payments/pay_00000006").send(stand.address()).await;
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!("payment-unknown")));
    assert_eq!(stand.provider.requests().fetch, 2);
}

#[tokio::test]
async fn payments_are_found_by_their_key() {
    let stand = stand().await;
    assert_eq!(page(&stand, "?idempotency_key=same").await, (vec![502, 504], None));
    assert_eq!(page(&stand, "?idempotency_key=nobody").await, (vec![], None));
    assert_eq!(stand.provider.requests().by_key, 2);
    let (first, next) = page(&stand, "?idempotency_key=same&limit=1").await;
    assert_eq!(first, [502]);
    let rest = format!("?idempotency_key=same&limit=1&after={}", next.unwrap());
    assert_eq!(page(&stand, &rest).await, (vec![504], None));
}

#[tokio::test]
async fn a_key_with_odd_characters_is_found_when_it_is_encoded() {
    let stand = stand().await;
    pay("order 1:charge&x=y", 700).send(stand.address()).await;
    let query = "?idempotency_key=order%201%3Acharge%26x%3Dy";
    assert_eq!(page(&stand, query).await, (vec![700], None));
}

#[tokio::test]
async fn pages_are_walked_from_the_oldest_to_the_newest() {
    let stand = stand().await;
    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    for _ in 0..3 {
        let (amounts, next) = page(&stand, &query).await;
        seen.push(amounts);
        let Some(next) = next else { break };
        query = format!("?limit=2&after={next}");
    }
    assert_eq!(seen, [vec![500, 501], vec![502, 503], vec![504]]);
    assert_eq!(page(&stand, "?limit=5").await.1, None, "a full page can be the last");
}

#[tokio::test]
async fn a_report_begins_with_from_and_ends_before_until() {
    let stand = stand().await;
    let query = "?from=2026-03-01T12:00:01Z&until=2026-03-01T12:00:03.000Z";
    assert_eq!(page(&stand, query).await, (vec![501, 502], None));
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_refused() {
    let stand = stand().await;
    for query in
        ["?from=yesterday", "?limit=0", "?limit=1001", "?limit=x", "?after=x", "?since=now"]
    {
        let answer = get(format!("/v1/payments{query}")).send(stand.address()).await;
        let code = answer.json()["code"].clone();
        assert_eq!((answer.status, code), (400, Value::from("query-invalid")), "{query}");
    }
}
