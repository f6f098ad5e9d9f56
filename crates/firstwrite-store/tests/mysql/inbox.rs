//! A message of somebody else's takes effect once, in the consumer's own transaction.

use std::time::Duration;

use firstwrite_core::outbox::Outbox as _;
use firstwrite_core::{Store as _, StoreErrorKind};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{Consumed, Inbox, MysqlOptions};
use firstwrite_testkit::Subject as _;

use crate::server::{client, on_each};
use crate::subject::MysqlSubject;

fn stripe() -> Inbox {
    Inbox::new("stripe").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_takes_effect_once_however_its_transactions_end() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let mut own = client(&database.url).await;
        let now = store.now().await.unwrap();
        own.query_drop("START TRANSACTION").await.unwrap();
        assert_eq!(store.consume(&stripe(), "evt_1", &mut own).await.unwrap(), Consumed::First);
        own.query_drop("ROLLBACK").await.unwrap();
        own.query_drop("START TRANSACTION").await.unwrap();
        for wanted in [Consumed::First, Consumed::Again { at: now }] {
            assert_eq!(store.consume(&stripe(), "evt_1", &mut own).await.unwrap(), wanted);
        }
        own.query_drop("COMMIT").await.unwrap();
        subject.advance(Duration::from_hours(1)).await;
        let again = store.consume(&stripe(), "evt_1", &mut own).await.unwrap();
        assert_eq!(again, Consumed::Again { at: now });
        let adyen = Inbox::new("adyen").unwrap();
        let other = store.consume(&adyen, "evt_1", &mut own).await.unwrap();
        assert_eq!(other, Consumed::First, "two sources do not meet");
        let error = store.consume(&stripe(), "", &mut own).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    })
    .await;
}

/// The server's own default is a snapshot, which must not hide what was waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_consumes_at_the_same_time_waits_and_comes_second() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let (mut one, mut other) = (client(&database.url).await, client(&database.url).await);
        for connection in [&mut one, &mut other] {
            connection.query_drop("START TRANSACTION").await.unwrap();
            // Its snapshot begins here.
            connection.query_drop("SELECT * FROM firstwrite_inbox").await.unwrap();
        }
        assert_eq!(store.consume(&stripe(), "evt_1", &mut one).await.unwrap(), Consumed::First);
        let rival = store.clone();
        let waiting =
            tokio::spawn(async move { rival.consume(&stripe(), "evt_1", &mut other).await });
        let waits = "SELECT 'x' FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        // Asked more often, the server would go on showing what it showed before.
        let mut tick = tokio::time::interval(Duration::from_millis(150));
        while subject.tables().ask(waits).await.is_empty() {
            assert!(!waiting.is_finished(), "it does not wait");
            tick.tick().await;
        }
        one.query_drop("COMMIT").await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert!(matches!(second, Consumed::Again { .. }), "{second:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_consumed_is_forgotten_after_its_time() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let mut own = client(&database.url).await;
        let short = stripe().kept_for(Duration::from_hours(1));
        assert_eq!(store.consume(&short, "evt_1", &mut own).await.unwrap(), Consumed::First);
        store.upkeep(Duration::from_hours(1), 100).await.unwrap();
        assert!(matches!(
            store.consume(&short, "evt_1", &mut own).await.unwrap(),
            Consumed::Again { .. }
        ));
        subject.advance(Duration::from_hours(2)).await;
        store.upkeep(Duration::from_hours(1), 100).await.unwrap();
        assert_eq!(store.consume(&short, "evt_1", &mut own).await.unwrap(), Consumed::First);
    })
    .await;
}
