//! A provider that takes its time: before the effect, after it, and before it reports it.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Delay};
use serde_json::json;
use tokio::time::Instant;

use crate::client::{get, pay};
use crate::receiver::Receiver;
use crate::stand::Stand;

const MOMENT: Duration = Duration::from_millis(30);
/// Longer than any test.
const AGES: Duration = Duration::from_mins(10);

#[tokio::test]
async fn an_answer_takes_as_long_as_it_is_told_to() {
    let delay = Delay { before_effect: MOMENT, after_effect: MOMENT };
    let stand = Stand::new(Behaviour { delay, ..Behaviour::default() }).await;
    let begun = Instant::now();
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 201);
    assert!(begun.elapsed() >= MOMENT * 2);
}

#[tokio::test]
async fn a_caller_who_hangs_up_before_the_effect_does_not_prevent_it() {
    let mut receiver = Receiver::new().await;
    let delay = Delay { before_effect: MOMENT, ..Delay::default() };
    let webhooks = Some(receiver.webhooks());
    let stand = Stand::new(Behaviour { delay, webhooks, ..Behaviour::default() }).await;
    pay("k-1", 500).send_and_leave(stand.address()).await;
    assert_eq!(receiver.next().await.json()["data"]["idempotency_key"], "k-1");
    assert_eq!(stand.count(), 1);
}

#[tokio::test]
async fn an_effect_can_be_seen_before_its_answer() {
    let mut receiver = Receiver::new().await;
    let delay = Delay { after_effect: AGES, ..Delay::default() };
    let webhooks = Some(receiver.webhooks());
    let stand = Stand::new(Behaviour { delay, webhooks, ..Behaviour::default() }).await;
    let address = stand.address();
    let call = tokio::spawn(async move { pay("k-1", 500).try_send(address).await });
    receiver.next().await;
    let found = get("/v1/payments?idempotency_key=k-1").send(address).await.json();
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
    // Stopping waits for no delay: whoever waits for an answer sees the connection end.
    stand.stop().await;
    call.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_payment_that_was_not_made_when_the_provider_stopped_never_is() {
    let delay = Delay { before_effect: AGES, ..Delay::default() };
    let stand = Stand::new(Behaviour { delay, ..Behaviour::default() }).await;
    pay("k-1", 500).send_and_leave(stand.address()).await;
    let stand = stand.restart().await;
    assert_eq!(stand.count(), 0);
}

#[tokio::test]
async fn a_payment_is_not_reported_before_its_lag_is_over() {
    let behaviour = Behaviour { report_lag: Duration::from_secs(10), ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    let id = pay("k-1", 500).send(stand.address()).await.id();
    let paths = ["/v1/payments?idempotency_key=k-1".to_owned(), "/v1/payments".to_owned()];
    for (seconds, count, status) in [(9, 0, 404), (1, 1, 200)] {
        stand.clock.advance(Duration::from_secs(seconds));
        for path in &paths {
            let page = get(path).send(stand.address()).await.json();
            assert_eq!(page["data"].as_array().unwrap().len(), count, "{path}");
            assert_eq!(page["next"], json!(null));
        }
        let one = get(format!("/v1/payments/{id}")).send(stand.address()).await;
        assert_eq!(one.status, status);
    }
}
