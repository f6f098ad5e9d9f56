//! What the doctor says of real servers.

use std::time::Duration;

use firstwrite_store::doctor::Severity;
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore, doctor};

use crate::server::{client, on_each};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_roll_back_and_an_old_transaction_are_named() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let store = MysqlStore::connect_read_only(&database.url).await.unwrap();
        let look = async || doctor::mysql(&store, Duration::from_secs(1)).await.unwrap();
        let found = look().await;
        assert!(found.iter().any(|finding| finding.code == "server-version"), "{found:?}");
        let mut admin = client(&database.url).await;
        let engine = "ALTER TABLE firstwrite_inbox ENGINE = MyISAM";
        admin.query_drop(engine).await.unwrap();
        let found = look().await;
        let engine = found.iter().find(|finding| finding.code == "engine").unwrap();
        assert_eq!(engine.severity, Severity::Unsafe);
        assert!(engine.what.contains("firstwrite_inbox"), "{engine:?}");
        admin.query_drop("START TRANSACTION").await.unwrap();
        admin.query_drop("DELETE FROM firstwrite_records").await.unwrap();
        // Asked more often, the server would go on showing what it showed before.
        let mut tick = tokio::time::interval(Duration::from_millis(150));
        for looks in 0.. {
            assert!(looks < 100, "an old transaction is not noticed");
            if look().await.iter().any(|finding| finding.code == "old-transaction") {
                break;
            }
            tick.tick().await;
        }
    })
    .await;
}
