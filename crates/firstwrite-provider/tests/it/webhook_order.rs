//! Webhooks that come twice, and in the wrong order.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Webhooks};

use crate::client::pay;
use crate::receiver::Receiver;
use crate::stand::Stand;

async fn pay_all(stand: &Stand, count: usize) {
    for number in 0..count {
        pay(&format!("k-{number}"), 500).send(stand.address()).await;
    }
}

async fn stand(webhooks: Webhooks) -> Stand {
    Stand::new(Behaviour { webhooks: Some(webhooks), ..Behaviour::default() }).await
}

#[tokio::test]
async fn webhooks_come_in_the_order_of_payments() {
    let mut receiver = Receiver::new().await;
    let stand = stand(receiver.webhooks()).await;
    pay_all(&stand, 5).await;
    assert_eq!(receiver.next_payments(5).await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_duplicate_has_the_same_id() {
    let mut receiver = Receiver::new().await;
    let stand = stand(Webhooks { duplicates: 3, ..receiver.webhooks() }).await;
    pay_all(&stand, 2).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(receiver.next().await.id);
    }
    let [one, two] = ["evt_00000001", "evt_00000002"];
    assert_eq!(ids, [one, one, one, two, two, two]);
}

#[tokio::test]
async fn groups_are_held_back_and_reversed() {
    let mut receiver = Receiver::new().await;
    let webhooks = Webhooks { out_of_order: 3, ..receiver.webhooks() };
    // Longer than any test: only a full group is sent.
    let stand = stand(Webhooks { hold_for: Duration::from_mins(10), ..webhooks }).await;
    pay_all(&stand, 7).await;
    assert_eq!(receiver.next_payments(6).await, [3, 2, 1, 6, 5, 4]);
    assert!(receiver.has_none_waiting());
}

#[tokio::test]
async fn an_incomplete_group_is_not_held_back_for_ever() {
    let mut receiver = Receiver::new().await;
    let webhooks = Webhooks { out_of_order: 100, ..receiver.webhooks() };
    let stand = stand(Webhooks { hold_for: Duration::from_millis(1), ..webhooks }).await;
    pay_all(&stand, 1).await;
    assert_eq!(receiver.next_payments(1).await, [1]);
}

#[tokio::test]
async fn duplicates_and_disorder_come_together() {
    let mut receiver = Receiver::new().await;
    let webhooks = Webhooks { out_of_order: 2, duplicates: 2, ..receiver.webhooks() };
    let stand = stand(Webhooks { hold_for: Duration::from_mins(10), ..webhooks }).await;
    pay_all(&stand, 2).await;
    assert_eq!(receiver.next_payments(4).await, [2, 2, 1, 1]);
}
