//! What was delivered long ago is deleted in small steps, and nothing else is.

use firstwrite_core::outbox::{
    Cause, MessageQuery, MessageState, Next, Outbox, Resolution, protocol,
};

use super::{
    DAY, ada, claim, claim_one, counts, delivered, enqueue, failed, message, settle, views,
};
use crate::shop::Shop;

#[tokio::test]
async fn only_what_ended_long_ago_is_deleted() {
    let shop = Shop::open();
    enqueue(&shop.store, &["unknown", "dead", "dropped", "early", "late", "waiting"]).await;
    let messages = claim(&shop.store, 5).await;
    settle(&shop.store, failed(&messages[0], Next::Unknown("nobody knows"))).await;
    settle(&shop.store, failed(&messages[1], Next::Dead(Cause::Refused))).await;
    let given_back = Next::Waiting {
        pause: std::time::Duration::ZERO,
        counts: false,
        sent: firstwrite_core::outbox::Sent::AsBefore,
    };
    settle(&shop.store, super::settlement(&messages[2], None, given_back)).await;
    let (number, fence) = (messages[2].number, messages[2].fence);
    protocol::resolve(&shop.store, number, fence, &Resolution::Dropped, &ada("drop"))
        .await
        .unwrap();
    settle(&shop.store, delivered(&messages[3], "pay_1")).await;
    shop.pass(DAY / 2);
    settle(&shop.store, delivered(&messages[4], "pay_2")).await;
    shop.pass(DAY / 2);
    assert_eq!(shop.store.upkeep(DAY, 9).await.unwrap(), 2);
    let left: Vec<_> = views(&shop.store).await.into_iter().map(|view| view.derived_key).collect();
    assert_eq!(left, ["unknown:step", "dead:step", "late:step", "waiting:step"]);
    let orphans = "SELECT message || '' FROM firstwrite_deliveries
                   WHERE message NOT IN (SELECT message FROM firstwrite_messages)";
    assert!(shop.column(orphans).await.is_empty());
    assert_eq!(counts(&shop.store).await, [1, 1, 1, 2], "what arrived stays counted");
}

#[tokio::test]
async fn deleting_goes_on_where_it_stopped_and_comes_back_for_what_was_pending() {
    let shop = Shop::open();
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    enqueue(&shop.store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let messages = claim(&shop.store, 30).await;
    for claimed_message in &messages[1..] {
        settle(&shop.store, delivered(claimed_message, "pay")).await;
    }
    shop.pass(DAY);
    let mut steps = Vec::new();
    for _ in 0..4 {
        steps.push(shop.store.upkeep(DAY, 10).await.unwrap());
    }
    assert_eq!(steps, [10, 10, 9, 0]);
    settle(&shop.store, delivered(&claim_one(&shop.store).await, "pay")).await;
    shop.pass(DAY);
    assert_eq!(shop.store.upkeep(DAY, 10).await.unwrap(), 1);
    assert!(views(&shop.store).await.is_empty());
}

#[tokio::test]
async fn a_successor_that_was_forgotten_is_let_go() {
    let shop = Shop::open();
    for key in ["a", "b", "c"] {
        shop.store.enqueue(&message(key).ordered_by("order")).await.unwrap();
    }
    let sql = "DELETE FROM firstwrite_pending WHERE message = 1";
    shop.store.write(move |connection| connection.execute_batch(sql)).await.unwrap();
    assert!(claim(&shop.store, 9).await.is_empty());
    shop.store.upkeep(DAY, 9).await.unwrap();
    let keys: Vec<_> = claim(&shop.store, 9).await.into_iter().map(|p| p.derived_key).collect();
    assert_eq!(keys, ["b:step"]);
}

#[tokio::test]
async fn redriving_takes_the_dead_ones_that_match_and_says_so_under_each_record() {
    let shop = Shop::open();
    enqueue(&shop.store, &["a", "b", "c", "d"]).await;
    let messages = claim(&shop.store, 4).await;
    for claimed_message in &messages[..3] {
        settle(&shop.store, failed(claimed_message, Next::Dead(Cause::Exhausted))).await;
    }
    let by = ada("redrive");
    let other = MessageQuery { problem: Some("declined".to_owned()), ..MessageQuery::default() };
    assert_eq!(protocol::redrive(&shop.store, &other, 9, &by).await.unwrap(), 0);
    let unknown = MessageQuery { state: Some(MessageState::Unknown), ..MessageQuery::default() };
    assert_eq!(protocol::redrive(&shop.store, &unknown, 9, &by).await.unwrap(), 0);
    let away = MessageQuery { problem: Some("503".to_owned()), ..MessageQuery::default() };
    assert_eq!(protocol::redrive(&shop.store, &away, 2, &by).await.unwrap(), 2);
    assert_eq!(counts(&shop.store).await, [3, 0, 1, 0]);
    assert_eq!(claim(&shop.store, 9).await.len(), 2);
    let audits = "SELECT hex(id) || action FROM firstwrite_audit ORDER BY entry";
    let expected: Vec<String> = ["a", "b"]
        .into_iter()
        .zip(1..)
        .map(|(key, number)| {
            let id = crate::shop::id_of(key).to_string().to_uppercase();
            format!("{id}redrive message {number}")
        })
        .collect();
    assert_eq!(shop.column(audits).await, expected);
}
