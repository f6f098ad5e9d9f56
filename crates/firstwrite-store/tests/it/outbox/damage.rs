//! A message that cannot be read stops nobody else's.

use firstwrite_core::outbox::{Cause, ClaimStatus, Next, Outbox, protocol};

use super::{claim, claim_one, counts, delivered, enqueue, failed, settle, views};
use crate::shop::Shop;

async fn damage(shop: &Shop, sql: &'static str) {
    shop.store.write(move |connection| connection.execute_batch(sql)).await.unwrap();
}

#[tokio::test]
async fn messages_that_cannot_be_read_are_skipped_and_the_others_leave() {
    for sql in [
        "UPDATE firstwrite_messages SET tenant = 77 WHERE message = 1",
        "UPDATE firstwrite_messages SET payload = 'text' WHERE message = 1",
        "UPDATE firstwrite_messages SET derived_key = x'ff' WHERE message = 1",
        "UPDATE firstwrite_messages SET answers = x'09' WHERE message = 1",
        "UPDATE firstwrite_messages SET created_at = 'noon' WHERE message = 1",
        "DELETE FROM firstwrite_messages WHERE message = 1",
        "UPDATE firstwrite_pending SET id = x'00' WHERE message = 1",
        "UPDATE firstwrite_pending SET state = 9 WHERE message = 1",
        "UPDATE firstwrite_pending SET fence = 'none' WHERE message = 1",
        "UPDATE firstwrite_pending SET delivery_count = -1 WHERE message = 1",
    ] {
        let shop = Shop::open();
        enqueue(&shop.store, &["bad", "good", "better"]).await;
        damage(&shop, sql).await;
        // Fresh connections, which remember nothing.
        let path = shop.path();
        shop.store.clone().close().await;
        let options = crate::shop::options(&shop.clock);
        let store = firstwrite_store::SqliteStore::open_with(path, options).unwrap();
        assert_eq!(claim_one(&store).await.derived_key, "good:step", "{sql}");
        assert_eq!(claim(&store, 9).await.len(), 1, "{sql}");
        assert!(claim(&store, 9).await.is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_read_any_more_does_not_hold() {
    let shop = Shop::open();
    enqueue(&shop.store, &["bad", "good"]).await;
    let messages = claim(&shop.store, 2).await;
    damage(&shop, "UPDATE firstwrite_pending SET lapse_count = 'x' WHERE message = 1").await;
    let settlements = [delivered(&messages[0], "pay_1"), delivered(&messages[1], "pay_2")];
    let held = protocol::settle(&shop.store, &[], &settlements).await.unwrap();
    assert_eq!(held, [ClaimStatus::Lost, ClaimStatus::Current]);
    // That it arrived is known all the same.
    let endings = "SELECT message || ' ' || ending FROM firstwrite_deliveries ORDER BY message";
    assert_eq!(shop.column(endings).await, ["1 delivered", "2 delivered"]);
}

#[tokio::test]
async fn a_destination_that_cannot_be_read_is_left_alone_and_harms_nobody() {
    let shop = Shop::open();
    enqueue(&shop.store, &["k"]).await;
    protocol::pause(&shop.store, "provider", &super::ada("pause")).await.unwrap();
    damage(&shop, "UPDATE firstwrite_destinations SET paused_at = NULL, open_until = 'x'").await;
    assert!(claim(&shop.store, 9).await.is_empty());
    damage(&shop, "UPDATE firstwrite_messages SET created_at = 'noon'").await;
    assert_eq!(shop.store.upkeep(super::DAY, 9).await.unwrap(), 0);
}

#[tokio::test]
async fn what_went_wrong_is_kept_short() {
    let shop = Shop::open();
    enqueue(&shop.store, &["k"]).await;
    let claimed_message = claim_one(&shop.store).await;
    let mut settlement = failed(&claimed_message, Next::Dead(Cause::Exhausted));
    settlement.delivery.as_mut().unwrap().detail = "ü".repeat(2000);
    settle(&shop.store, settlement).await;
    let view = views(&shop.store).await.remove(0);
    assert_eq!(view.problem.map(|problem| problem.len()), Some(500));
    let story = shop.store.message(claimed_message.number).await.unwrap().unwrap();
    assert_eq!(story.deliveries[0].detail.len(), 500);
    assert_eq!(counts(&shop.store).await, [0, 0, 1, 0]);
}
