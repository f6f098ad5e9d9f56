//! Word of new messages: within a process, and between processes.

use std::time::Duration;

use firstwrite_core::outbox::Outbox;
use firstwrite_store::PostgresStore;
use tokio::time::timeout;

use super::{claim, enqueue, subject};
use crate::server::{Way, on_database};

/// Longer than word ever takes; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);

async fn wait_for_work(store: &PostgresStore) {
    timeout(PATIENCE, store.wait_for_work()).await.expect("there was no word");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_the_same_process_is_told_at_once() {
    on_database(Way::Pooler, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        // Before anybody waits, and while somebody does.
        enqueue(&store, &["a"], "mailer").await;
        wait_for_work(&store).await;
        assert_eq!(claim(&store, "mailer", 9).await.len(), 1);
        let waiting = {
            let store = store.clone();
            tokio::spawn(async move { wait_for_work(&store).await })
        };
        enqueue(&store, &["b"], "mailer").await;
        waiting.await.unwrap();
        assert_eq!(claim(&store, "mailer", 9).await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_another_process_is_told_and_again_after_its_connection_was_cut() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, rival) = (subject.postgres(), subject.rival().await);
        // The first word is that it listens now.
        wait_for_work(&rival).await;
        claim(&rival, "mailer", 9).await;
        enqueue(&store, &["a"], "mailer").await;
        wait_for_work(&rival).await;
        assert_eq!(claim(&rival, "mailer", 9).await.len(), 1);
        subject.cut().await;
        // It listens again, and says so, since something may have come meanwhile.
        wait_for_work(&rival).await;
        while rival.claim(&[], 1).await.is_err() {}
        enqueue(&store, &["b"], "mailer").await;
        wait_for_work(&rival).await;
    })
    .await;
}
