//! A process that ends takes nothing along, whatever its messages were at.

use std::time::Duration;

use firstwrite_core::outbox::MessageState::{Dead, Delivered, Sending, Unknown, Waiting};
use firstwrite_core::outbox::{
    Cause, ClaimStatus, MessageState, Next, Outbox, Received, Resolution, Sent, Switch, protocol,
};
use firstwrite_store::SqliteStore;

use super::{
    ada, claim, claim_one, counts, delivered, destination, enqueue, failed, message, receipt,
    settle, views,
};
use crate::shop::{LEASE, Shop, options};

/// The store as the next process finds it: a copy of the files as they are on the disk this moment, so
/// nothing is flushed, folded or closed first.
fn after_a_kill(shop: &Shop) -> SqliteStore {
    let (old, new) = (shop.path(), shop.folder.path().join("next.db"));
    std::fs::copy(&old, &new).unwrap();
    std::fs::copy(old.with_extension("db-wal"), new.with_extension("db-wal")).unwrap();
    SqliteStore::open_with(new, options(&shop.clock)).unwrap()
}

#[tokio::test]
async fn every_state_survives_the_end_of_the_process() {
    let shop = Shop::open();
    enqueue(&shop.store, &["delivered", "unknown", "dead", "again", "sending", "waiting"]).await;
    let messages = claim(&shop.store, 5).await;
    settle(&shop.store, delivered(&messages[0], "pay_1")).await;
    settle(&shop.store, failed(&messages[1], Next::Unknown("nobody knows"))).await;
    settle(&shop.store, failed(&messages[2], Next::Dead(Cause::Refused))).await;
    let pause = Duration::from_secs(5);
    let again = Next::Waiting { pause, counts: true, sent: Sent::Maybe };
    settle(&shop.store, failed(&messages[3], again)).await;
    let open = Switch::Open { open_for: LEASE, cause: "it was away".to_owned() };
    protocol::switch(&shop.store, "provider", &open).await.unwrap();
    protocol::pause(&shop.store, "provider", &ada("pause")).await.unwrap();

    let (views_before, counts_before) = (views(&shop.store).await, counts(&shop.store).await);
    let states: Vec<MessageState> = views_before.iter().map(|view| view.state).collect();
    assert_eq!(states, [Delivered, Unknown, Dead, Waiting, Sending, Waiting]);
    assert_eq!(counts_before, [3, 1, 1, 1]);

    let next = after_a_kill(&shop);
    assert_eq!(views(&next).await, views_before);
    assert_eq!(counts(&next).await, counts_before);
    let stands = destination(&next).await;
    assert_eq!(stands, destination(&shop.store).await);
    assert_eq!(stands.paused.map(|paused| paused.entry), Some(ada("pause")));
    assert_eq!((stands.opening_count, stands.open_cause.as_deref()), (1, Some("it was away")));
}

#[tokio::test]
async fn a_claim_of_the_last_process_lapses_and_its_receipt_is_found() {
    let shop = Shop::open();
    enqueue(&shop.store, &["sent", "known"]).await;
    let messages = claim(&shop.store, 2).await;
    let delivery = delivered(&messages[1], "pay_1").delivery.unwrap();
    let (number, fence) = (messages[1].number, messages[1].fence);
    protocol::settle(&shop.store, &[Received { number, fence, delivery }], &[]).await.unwrap();

    let next = after_a_kill(&shop);
    assert!(claim(&next, 9).await.is_empty(), "the leases still hold");
    shop.pass(LEASE);
    let claimed = claim(&next, 9).await;
    let told: Vec<_> = claimed
        .iter()
        .map(|claimed_message| (claimed_message.lapse_count, claimed_message.receipt.clone()))
        .collect();
    assert_eq!(told, [(1, None), (1, Some(receipt("pay_1")))]);
    assert!(claimed.iter().all(|claimed_message| claimed_message.maybe_sent_at.is_some()));
    // The last process, should it still be there, is refused.
    let late = protocol::settle(&next, &[], &[delivered(&messages[0], "pay_2")]).await.unwrap();
    assert_eq!(late, [ClaimStatus::Lost]);
}

#[tokio::test]
async fn a_number_is_never_given_twice() {
    let shop = Shop::open();
    enqueue(&shop.store, &["a"]).await;
    let first = claim_one(&shop.store).await;
    settle(&shop.store, delivered(&first, "pay_1")).await;
    shop.pass(super::DAY);
    assert_eq!(shop.store.upkeep(super::DAY, 9).await.unwrap(), 1);
    let next = after_a_kill(&shop);
    enqueue(&next, &["b"]).await;
    assert!(claim_one(&next).await.number > first.number);
}

#[tokio::test]
async fn the_next_in_order_is_let_go_by_whatever_ends_its_predecessor() {
    let shop = Shop::open();
    for key in ["a", "b", "c", "d"] {
        shop.store.enqueue(&message(key).ordered_by("order")).await.unwrap();
    }
    let head = claim_one(&shop.store).await;
    settle(&shop.store, failed(&head, Next::Unknown("nobody knows"))).await;
    let next = after_a_kill(&shop);
    assert!(claim(&next, 9).await.is_empty(), "an unknown one holds its successors");
    let found = Resolution::Delivered { receipt: receipt("pay_1"), answer: None };
    let by = ada("resolve");
    let held = protocol::resolve(&next, head.number, head.fence, &found, &by).await.unwrap();
    assert_eq!(held, ClaimStatus::Current);
    let second = claim_one(&next).await;
    settle(&next, failed(&second, Next::Dead(Cause::Refused))).await;
    assert!(claim(&next, 9).await.is_empty(), "a dead one holds its successors");
    // One that waits behind another can be given up, and nothing overtakes.
    let third = views(&next).await[2].clone();
    let held = protocol::resolve(&next, third.number, third.fence, &Resolution::Dropped, &by)
        .await
        .unwrap();
    assert_eq!(held, ClaimStatus::Current);
    assert!(claim(&next, 9).await.is_empty(), "the dead one is still there");
    let held = protocol::resolve(&next, second.number, second.fence, &Resolution::Dropped, &by)
        .await
        .unwrap();
    assert_eq!(held, ClaimStatus::Current);
    let last = claim_one(&next).await;
    assert_eq!(last.derived_key, "d:step");
    settle(&next, delivered(&last, "pay_4")).await;
    assert_eq!(counts(&next).await, [0, 0, 0, 2]);
}
