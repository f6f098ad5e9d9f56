//! Webhooks: what they say, who signed them, and that nobody waits for them.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Chance, Options, Provider, Webhooks};
use serde_json::json;

use crate::client::{get, pay, put};
use crate::receiver::{Receiver, secret};
use crate::stand::{Stand, noon};

async fn stand(webhooks: Webhooks) -> Stand {
    Stand::new(Behaviour { webhooks: Some(webhooks), ..Behaviour::default() }).await
}

#[tokio::test]
async fn a_payment_is_told_of_once_and_signed() {
    let mut receiver = Receiver::new().await;
    let stand = stand(receiver.webhooks()).await;
    let answer = pay("k-1", 500).send(stand.address()).await;
    let received = receiver.next().await;
    assert_eq!(received.timestamp, noon().as_seconds());
    let told = json!({ "id": received.id, "type": "payment.settled", "data": answer.json() });
    assert_eq!(received.json(), told);
    assert_eq!(received.id, "evt_00000001");
    // A replay has no effect, so there is nothing to tell; the next webhook is the next payment's.
    pay("k-1", 500).send(stand.address()).await;
    pay("k-2", 500).send(stand.address()).await;
    assert_eq!(receiver.next_payments(1).await, [2]);
}

#[tokio::test]
async fn no_answer_waits_for_a_webhook() {
    let mut receiver = Receiver::silent().await;
    let stand = stand(receiver.webhooks()).await;
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 201);
    receiver.next().await;
    // The first is unanswered, and payments go on.
    assert_eq!(pay("k-2", 500).send(stand.address()).await.status, 201);
    assert!(receiver.has_none_waiting());
    receiver.answer_all();
    assert_eq!(receiver.next_payments(1).await, [2]);
}

#[tokio::test]
async fn a_payment_whose_answer_was_lost_is_told_of_all_the_same() {
    let mut receiver = Receiver::new().await;
    let behaviour = Behaviour {
        lose_answers: Chance::Always,
        webhooks: Some(receiver.webhooks()),
        ..Behaviour::default()
    };
    let stand = Stand::new(behaviour).await;
    pay("k-1", 500).try_send(stand.address()).await.unwrap_err();
    assert_eq!(receiver.next().await.json()["data"]["idempotency_key"], "k-1");
}

#[tokio::test]
async fn a_failed_webhook_is_sent_again_under_the_same_id() {
    let mut receiver = Receiver::answering(&[500, 503]).await;
    let stand = stand(receiver.webhooks()).await;
    pay("k-1", 500).send(stand.address()).await;
    let first = receiver.next().await;
    let second = receiver.next().await;
    let third = receiver.next().await;
    assert_eq!((&first.id, &first.id), (&second.id, &third.id));
    assert_eq!(first.json(), third.json());
}

#[tokio::test]
async fn a_webhook_is_given_up_in_the_end_and_the_others_go_on() {
    let mut receiver = Receiver::answering(&[500, 500]).await;
    let webhooks = Webhooks { tries_max: 2, ..receiver.webhooks() };
    let stand = stand(webhooks).await;
    pay("k-1", 500).send(stand.address()).await;
    assert_eq!(receiver.next_payments(2).await, [1, 1]);
    pay("k-2", 500).send(stand.address()).await;
    assert_eq!(receiver.next_payments(1).await, [2]);
    assert!(receiver.has_none_waiting());
}

#[tokio::test]
async fn webhooks_are_set_from_outside_and_the_secret_is_not_shown() {
    let mut receiver = Receiver::new().await;
    let stand = Stand::new(Behaviour::default()).await;
    let url = receiver.webhooks().url;
    let nobody = put("/control", json!({ "webhooks": { "url": url } }).to_string());
    assert_eq!(nobody.send(stand.address()).await.status, 400, "nothing to sign with");
    let all = json!({ "webhooks": { "url": url, "secret": secret() } }).to_string();
    assert_eq!(put("/control", all).send(stand.address()).await.status, 200);
    let shown = get("/control").send(stand.address()).await;
    assert!(!shown.text().contains("whsec_"), "{}", shown.text());
    // What was shown can be sent back: the secret stays.
    assert_eq!(put("/control", shown.body.clone()).send(stand.address()).await.status, 200);
    stand.clock.advance(Duration::from_secs(5));
    pay("k-1", 500).send(stand.address()).await;
    assert_eq!(receiver.next().await.timestamp, noon().as_seconds() + 5);
}

/// As `kill -9` leaves it, the ledger alone is there: what it owes is sent by the next life, until it is taken.
#[tokio::test]
async fn a_webhook_that_nobody_took_is_sent_again_after_a_restart() {
    let mut deaf = Receiver::silent().await;
    let first = stand(deaf.webhooks()).await;
    for key in ["k-1", "k-2"] {
        pay(key, 500).send(first.address()).await;
    }
    let told = deaf.next().await;
    let (_folder, options) = first.stop().await;

    let mut receiver = Receiver::new().await;
    let behaviour = Behaviour { webhooks: Some(receiver.webhooks()), ..Behaviour::default() };
    let options = Options { behaviour, ..options };
    let second = Provider::start(options.clone()).await.unwrap();
    let again = receiver.next().await;
    assert_eq!((&again.id, again.json()), (&told.id, told.json()));
    assert_eq!(receiver.next_payments(1).await, [2]);
    pay("k-3", 500).send(second.address()).await;
    assert_eq!(receiver.next_payments(1).await, [3]);
    // Counted when the answer is there, and noted by then.
    while second.webhooks().delivered < 3 {
        tokio::task::yield_now().await;
    }
    second.stop().await;

    let third = Provider::start(options).await.unwrap();
    pay("k-4", 500).send(third.address()).await;
    assert_eq!(receiver.next_payments(1).await, [4], "what was taken is not sent again");
}

#[tokio::test]
async fn a_webhook_that_was_given_up_is_owed_and_one_that_nobody_wanted_is_not() {
    let mut receiver = Receiver::answering(&[500]).await;
    let first = Stand::new(Behaviour::default()).await;
    pay("unwanted", 500).send(first.address()).await;
    let webhooks = Webhooks { tries_max: 1, ..receiver.webhooks() };
    first.provider.behave(Behaviour { webhooks: Some(webhooks), ..Behaviour::default() }).unwrap();
    pay("given-up", 500).send(first.address()).await;
    assert_eq!(receiver.next_payments(1).await, [2]);
    let (_folder, options) = first.stop().await;
    let behaviour = Behaviour { webhooks: Some(receiver.webhooks()), ..Behaviour::default() };
    let _second = Provider::start(Options { behaviour, ..options }).await.unwrap();
    assert_eq!(receiver.next_payments(1).await, [2]);
}
