//! A message of somebody else's takes effect once, in the consumer's own transaction.

use std::time::Duration;

use firstwrite_core::outbox::Outbox;
use firstwrite_core::{
    Conclusion, StoreError, StoreErrorKind, Timestamp, Transacted, TransactionalStore, Write,
};
use firstwrite_store::rusqlite::{self, Connection};
use firstwrite_store::{Consumed, Inbox, SqliteStore, SqliteTx};

use crate::shop::{Shop, completed, id_of, options};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn stripe() -> Inbox {
    Inbox::new("stripe").unwrap()
}

/// Consumes a message and, if it is the first, orders something, in a transaction that `ends` so.
async fn consume(
    shop: &Shop,
    inbox: &Inbox,
    message_id: &'static str,
    ends: rusqlite::Result<()>,
) -> Result<Consumed, StoreError> {
    let inbox = inbox.clone();
    let work = move |connection: &Connection| {
        let consumed = SqliteStore::consume(&inbox, message_id, connection)
            .map_err(|error| rusqlite::Error::UserFunctionError(error.into()))?;
        if consumed == Consumed::First {
            connection.execute("INSERT INTO orders VALUES (?1)", [message_id])?;
        }
        ends.map(|()| consumed)
    };
    shop.store.write(work).await
}

#[tokio::test]
async fn a_message_takes_effect_once_over_two_transactions() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    assert_eq!(consume(&shop, &stripe(), "evt_1", Ok(())).await.unwrap(), Consumed::First);
    shop.pass(Duration::from_secs(5));
    let again = consume(&shop, &stripe(), "evt_1", Ok(())).await.unwrap();
    assert_eq!(again, Consumed::Again { at: NOW });
    assert_eq!(consume(&shop, &stripe(), "evt_2", Ok(())).await.unwrap(), Consumed::First);
    assert_eq!(shop.orders().await, ["evt_1", "evt_2"]);
}

#[tokio::test]
async fn a_message_takes_effect_once_within_one_transaction() {
    let shop = Shop::open();
    let work = |tx: &mut SqliteTx<'_>, _found: Option<_>| {
        let consumed = [(); 2].map(|()| SqliteStore::consume(&stripe(), "evt_1", tx).unwrap());
        Conclusion { write: Write::All(Box::new(completed("k", "{}"))), answer: consumed }
    };
    let ended = shop.store.transact(id_of("k"), work).await.unwrap();
    let Transacted::Done(consumed, _) = ended else { panic!("{ended:?}") };
    assert_eq!(consumed, [Consumed::First, Consumed::Again { at: NOW }]);
}

#[tokio::test]
async fn what_was_rolled_back_was_never_consumed() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let undone = Err(rusqlite::Error::QueryReturnedNoRows);
    consume(&shop, &stripe(), "evt_1", undone).await.unwrap_err();
    let work = |tx: &mut SqliteTx<'_>, _found: Option<_>| {
        let consumed = SqliteStore::consume(&stripe(), "evt_1", tx).unwrap();
        Conclusion { write: Write::Nothing, answer: consumed }
    };
    let ended = shop.store.transact(id_of("k"), work).await.unwrap();
    assert!(matches!(ended, Transacted::Done(Consumed::First, _)), "{ended:?}");
    assert_eq!(consume(&shop, &stripe(), "evt_1", Ok(())).await.unwrap(), Consumed::First);
    assert_eq!(shop.orders().await, ["evt_1"]);
}

#[tokio::test]
async fn two_sources_do_not_meet() {
    let shop = Shop::open();
    for source in ["stripe", "adyen"] {
        let inbox = Inbox::new(source).unwrap();
        let consumed = shop
            .store
            .write(move |tx| Ok(SqliteStore::consume(&inbox, "evt_1", tx).unwrap()))
            .await;
        assert_eq!(consumed.unwrap(), Consumed::First, "{source}");
    }
}

#[tokio::test]
async fn a_message_is_forgotten_after_its_time_a_few_at_a_time() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let day = Duration::from_hours(24);
    let short = stripe().kept_for(day);
    for message_id in ["evt_1", "evt_2", "evt_3"] {
        consume(&shop, &short, message_id, Ok(())).await.unwrap();
    }
    consume(&shop, &stripe(), "evt_4", Ok(())).await.unwrap();
    let left = "SELECT count(*) || '' FROM firstwrite_inbox";
    let almost = Duration::from_millis(24 * 3_600_000 - 1);
    shop.pass(almost);
    shop.store.upkeep(day, 9).await.unwrap();
    assert_eq!(shop.column(left).await, ["4"]);
    shop.pass(Duration::from_millis(1));
    shop.store.upkeep(day, 2).await.unwrap();
    assert_eq!(shop.column(left).await, ["2"]);
    shop.store.upkeep(day, 2).await.unwrap();
    shop.store.upkeep(day, 2).await.unwrap();
    assert_eq!(shop.column(left).await, ["1"], "thirty days unless said otherwise");
    shop.pass(day * 29);
    shop.store.upkeep(day, 2).await.unwrap();
    assert_eq!(shop.column(left).await, ["0"]);
    let forever = stripe().kept_for(Duration::MAX);
    shop.store
        .write(move |tx| Ok(SqliteStore::consume(&forever, "evt_5", tx).unwrap()))
        .await
        .unwrap();
    shop.pass(day * 10_000);
    shop.store.upkeep(day, 2).await.unwrap();
    assert_eq!(shop.column(left).await, ["1"]);
}

#[tokio::test]
async fn what_was_consumed_is_known_to_the_next_process() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    consume(&shop, &stripe(), "evt_1", Ok(())).await.unwrap();
    let Shop { store, folder, clock } = shop;
    store.close().await;
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open_with(path, options(&clock)).unwrap();
    let shop = Shop { store, folder, clock };
    let again = consume(&shop, &stripe(), "evt_1", Ok(())).await.unwrap();
    assert_eq!(again, Consumed::Again { at: NOW });
}

#[tokio::test]
async fn an_id_that_is_none_and_a_connection_that_is_not_the_stores_are_refused() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let error = consume(&shop, &stripe(), "", Ok(())).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert!(error.to_string().contains("1 to 512 bytes"), "{error}");
    let path = shop.path();
    let error =
        SqliteStore::consume(&stripe(), "evt_1", &Connection::open(path).unwrap()).unwrap_err();
    assert!(error.to_string().contains("firstwrite_now"), "{error}");
}
