//! A message of somebody else's takes effect once, in the consumer's own transaction.

use std::time::Duration;

use firstwrite_core::outbox::Outbox as _;
use firstwrite_core::{Store as _, StoreErrorKind};
use firstwrite_store::{Consumed, Inbox, PostgresOptions};
use firstwrite_testkit::Subject as _;

use crate::server::{Way, client, on_database};
use crate::subject::PostgresSubject;

fn stripe() -> Inbox {
    Inbox::new("stripe").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_takes_effect_once_however_its_transactions_end() {
    for way in [Way::Direct, Way::Pooler] {
        on_database(way, &[], async |database| {
            let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
            let store = subject.postgres();
            let mut own = client(&database.url).await;
            let now = store.now().await.unwrap();
            let given_up = own.transaction().await.unwrap();
            let first = store.consume(&stripe(), "evt_1", &given_up).await.unwrap();
            assert_eq!(first, Consumed::First);
            given_up.rollback().await.unwrap();
            let tx = own.transaction().await.unwrap();
            for wanted in [Consumed::First, Consumed::Again { at: now }] {
                assert_eq!(store.consume(&stripe(), "evt_1", &tx).await.unwrap(), wanted);
            }
            tx.commit().await.unwrap();
            subject.advance(Duration::from_hours(1)).await;
            let again = store.consume(&stripe(), "evt_1", &own).await.unwrap();
            assert_eq!(again, Consumed::Again { at: now });
            let adyen = Inbox::new("adyen").unwrap();
            let other = store.consume(&adyen, "evt_1", &own).await.unwrap();
            assert_eq!(other, Consumed::First, "two sources do not meet");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_consumes_at_the_same_time_waits_and_comes_second() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let (mut one, other) = (client(&database.url).await, client(&database.url).await);
        let tx = one.transaction().await.unwrap();
        assert_eq!(store.consume(&stripe(), "evt_1", &tx).await.unwrap(), Consumed::First);
        let rival = store.clone();
        let waiting =
            tokio::spawn(async move { rival.consume(&stripe(), "evt_1", &other).await.unwrap() });
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND query LIKE '%consume%'";
        for look in 0.. {
            assert!(look < 100_000, "nobody waits");
            if subject.admin().query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                break;
            }
        }
        tx.commit().await.unwrap();
        assert!(matches!(waiting.await.unwrap(), Consumed::Again { .. }));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_forgotten_after_its_time_and_not_before() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let own = client(&database.url).await;
        let day = Duration::from_hours(24);
        let short = stripe().kept_for(day);
        store.consume(&short, "evt_1", &own).await.unwrap();
        store.consume(&stripe(), "evt_2", &own).await.unwrap();
        let count = async || -> i64 {
            let sql = format!("SELECT count(*) FROM {}.inbox", subject.schema());
            own.query_one(&sql, &[]).await.unwrap().get(0)
        };
        subject.advance(firstwrite_testkit::sample::just_before(day)).await;
        store.upkeep(day, 100).await.unwrap();
        assert_eq!(count().await, 2);
        subject.advance(Duration::from_millis(1)).await;
        store.upkeep(day, 100).await.unwrap();
        assert_eq!(count().await, 1);
        assert_eq!(store.consume(&short, "evt_1", &own).await.unwrap(), Consumed::First);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_arguments_are_refused_and_break_nothing() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let mut own = client(&database.url).await;
        let tx = own.transaction().await.unwrap();
        for wrong in ["", &"i".repeat(513)] {
            let error = store.consume(&stripe(), wrong, &tx).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        }
        assert_eq!(store.consume(&stripe(), "evt_1", &tx).await.unwrap(), Consumed::First);
        // What SQL computes is what Rust does: the other half of this vector is in `inbox.rs`.
        let sql = format!("SELECT id::text FROM {}.inbox", subject.schema());
        let id: String = tx.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(id.replace('-', ""), "b023a50447eb0a0b8cf27048f22fa088");
        tx.commit().await.unwrap();
        for call in ["consume(NULL, 'm')", "consume('a b', 'm')", "consume('s', 'm', '-1 day')"] {
            let sql = format!("SELECT {}.{call}", subject.schema());
            let error = own.query_one(&sql, &[]).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "FW003", "{call}");
        }
    })
    .await;
}
