//! An older copy of the file is put back: what it calls waiting may have been sent since.

use std::fs;
use std::time::Duration;

use firstwrite_core::outbox::MessageState::{Delivered, Sending, Waiting};
use firstwrite_core::outbox::{
    ClaimRequest, MessageState, Next, Outbox, REST_AFTER_LOSS, Sent, protocol,
};
use firstwrite_core::{Store as _, StoreErrorKind};
use firstwrite_store::SqliteStore;

use super::{claim, claim_one, counts, delivered, enqueue, failed, settle, views};
use crate::shop::{LEASE, Shop, id_of, options};

fn open(shop: &Shop) -> SqliteStore {
    SqliteStore::open_with(shop.path(), options(&shop.clock)).unwrap()
}

async fn refuses_to_claim(store: &SqliteStore) {
    let request =
        ClaimRequest { destination: "provider".to_owned(), count_max: 9, lease_for: LEASE };
    let refused = store.claim(&[request], 7).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
}

/// A store with a message that waits, one whose delivery failed and one under a claim, copied at that moment;
/// then all of them are delivered, and the copy is put back.
async fn put_back() -> (Shop, SqliteStore) {
    let shop = Shop::open();
    enqueue(&shop.store, &["sending", "again", "waiting"]).await;
    shop.pass(Duration::from_secs(1));
    let messages = claim(&shop.store, 2).await;
    let again = Next::Waiting { pause: Duration::ZERO, counts: true, sent: Sent::No };
    settle(&shop.store, failed(&messages[1], again)).await;
    shop.store.clone().close().await;
    let backup = shop.folder.path().join("backup.db");
    fs::copy(shop.path(), &backup).unwrap();

    let store = open(&shop);
    settle(&store, delivered(&messages[0], "pay_1")).await;
    shop.pass(Duration::from_secs(2));
    for message in claim(&store, 9).await {
        settle(&store, delivered(&message, "pay_2")).await;
    }
    assert_eq!(counts(&store).await, [0, 0, 0, 3]);
    store.close().await;
    fs::copy(&backup, shop.path()).unwrap();
    let store = open(&shop);
    let states: Vec<MessageState> = views(&store).await.iter().map(|view| view.state).collect();
    assert_eq!(states, [Sending, Waiting, Waiting], "the copy knows no better");
    (shop, store)
}

#[tokio::test]
async fn what_an_older_copy_calls_never_sent_is_in_doubt_once_its_loss_is_cleared() {
    let (shop, store) = put_back().await;
    refuses_to_claim(&store).await;
    let cleared = store.clear_history_losses("ann", "compared with the bank").await.unwrap();
    assert_eq!((cleared.losses, cleared.messages), (1, 3), "{cleared:?}");
    enqueue(&store, &["new"]).await;
    let new = claim_one(&store).await;
    assert_eq!((&*new.derived_key, new.maybe_sent_at), ("new:step", None));
    settle(&store, delivered(&new, "pay_3")).await;
    // Also by a process that is started since.
    store.close().await;
    let store = open(&shop);
    assert!(claim(&store, 9).await.is_empty());
    shop.pass(REST_AFTER_LOSS);
    let mut claimed = claim(&store, 9).await;
    claimed.sort_by_key(|message| message.number);
    let keys: Vec<&str> = claimed.iter().map(|message| &*message.derived_key).collect();
    assert_eq!(keys, ["sending:step", "again:step", "waiting:step"]);
    for message in &claimed {
        assert_eq!(message.maybe_sent_at, Some(message.created_at), "{message:?}");
    }
    let audits = store.audits(id_of("waiting")).await.unwrap();
    assert_eq!(audits.len(), 1, "{audits:?}");
    let entry = &audits[0].entry;
    assert_eq!((&*entry.actor, entry.reason.ends_with("compared with the bank")), ("ann", true));
}

#[tokio::test]
async fn a_store_that_lost_nothing_marks_nothing() {
    let shop = Shop::open();
    enqueue(&shop.store, &["k"]).await;
    let cleared = shop.store.clear_history_losses("ann", "to be sure").await.unwrap();
    assert_eq!((cleared.losses, cleared.messages), (0, 0));
    assert_eq!(claim_one(&shop.store).await.maybe_sent_at, None);
}

#[tokio::test]
async fn a_clearing_that_fails_halfway_leaves_the_loss_open() {
    let (shop, store) = put_back().await;
    // As after a kill between the two steps: everything is marked, and nothing cleared.
    let by = super::ada("clear history loss");
    assert_eq!(protocol::mark_maybe_sent(&store, &by, async || {}).await.unwrap(), 3);
    store.close().await;
    let store = open(&shop);
    refuses_to_claim(&store).await;
    let damage = "UPDATE firstwrite_pending SET lapse_count = 'x' WHERE message = 2";
    write_outside(&shop, &store, damage).await;
    let store = open(&shop);
    let failed = store.clear_history_losses("ann", "compared").await.unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
    assert!(failed.to_string().contains("message 2 cannot be read"), "{failed}");
    refuses_to_claim(&store).await;
    let mend = "UPDATE firstwrite_pending SET lapse_count = 0 WHERE message = 2";
    write_outside(&shop, &store, mend).await;
    let store = open(&shop);
    refuses_to_claim(&store).await;
    let cleared = store.clear_history_losses("ann", "compared").await.unwrap();
    assert_eq!((cleared.losses, cleared.messages), (1, 3), "{cleared:?}");
    let states: Vec<MessageState> = views(&store).await.iter().map(|view| view.state).collect();
    assert_eq!(states, [Waiting; 3], "no worker has a claim any more");
    shop.pass(REST_AFTER_LOSS);
    for message in claim(&store, 9).await {
        assert_eq!(message.maybe_sent_at, Some(message.created_at));
        settle(&store, delivered(&message, "pay_4")).await;
    }
    let states: Vec<MessageState> = views(&store).await.iter().map(|view| view.state).collect();
    assert_eq!(states, [Delivered; 3]);
}

/// Damages or mends the file of a store, which is closed for it.
async fn write_outside(shop: &Shop, store: &SqliteStore, sql: &str) {
    store.clone().close().await;
    let file = rusqlite::Connection::open(shop.path()).unwrap();
    file.execute_batch(sql).unwrap();
}

/// The way that docs/operate.md names: the message is taken out by hand, and the others are marked.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_taken_out_and_blocks_the_clearing_no_longer() {
    let (shop, store) = put_back().await;
    write_outside(
        &shop,
        &store,
        "UPDATE firstwrite_pending SET lapse_count = 'x' WHERE message = 2",
    )
    .await;
    let store = open(&shop);
    store.clear_history_losses("ann", "compared").await.unwrap_err();
    write_outside(&shop, &store, "DELETE FROM firstwrite_pending WHERE message = 2").await;
    let store = open(&shop);
    let cleared = store.clear_history_losses("ann", "compared").await.unwrap();
    assert_eq!((cleared.losses, cleared.messages), (1, 2), "{cleared:?}");
    let states: Vec<MessageState> = views(&store).await.iter().map(|view| view.state).collect();
    assert_eq!(states, [Waiting, MessageState::Dropped, Waiting]);
}
