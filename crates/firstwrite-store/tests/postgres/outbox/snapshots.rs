//! While somebody holds an old snapshot, nothing that was deleted can be cleared away: claims must not walk
//! over it again and again.

use std::time::Duration;

use firstwrite_core::outbox::{Ending, Next, Outbox, Sent, Settlement};
use firstwrite_testkit::Subject;

use super::{claim, deliver, message, number, settle, settlement, subject};
use crate::server::{Way, client, on_database};

/// Messages whose entries are all dead, and claims that find nothing behind them.
const COUNT: usize = 2000;
const CLAIMS: i64 = 100;

/// Entries of an index that scans have returned, dead ones included, as far as the server has counted.
async fn entries_read(subject: &crate::subject::PostgresSubject, index: &str) -> i64 {
    // Sessions that just worked report when they are idle: asking twice is not enough, so they are ended.
    subject.cut().await;
    let sql = format!(
        "SELECT idx_tup_read FROM pg_stat_user_indexes
         WHERE schemaname = '{}' AND indexrelname = '{index}'",
        subject.schema()
    );
    number(subject, &sql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_walk_over_the_dead_again_and_again() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        stranger
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            .await
            .unwrap();
        // Each of them waits once more before it is delivered: entries in every index, all dead soon.
        for at in 0..COUNT {
            store.enqueue(&message(&format!("k-{at}"), "mailer")).await.unwrap();
        }
        for round in 0..2 {
            for _ in 0..COUNT / 100 {
                let messages = claim(&store, "mailer", 100).await;
                if round == 0 {
                    let pause = Duration::from_secs(1);
                    let next = Next::Waiting { pause, counts: true, sent: Sent::No };
                    let all: Vec<Settlement> = messages
                        .iter()
                        .map(|claimed_message| {
                            settlement(claimed_message, Ending::Retry, next.clone())
                        })
                        .collect();
                    settle(&store, &all).await;
                } else {
                    deliver(&store, &messages).await;
                }
            }
            subject.advance(Duration::from_secs(1)).await;
        }
        assert_eq!(number(&subject, "SELECT count(*) FROM pending").await, 0);
        subject.advance(Duration::from_secs(5)).await;
        claim(&store, "mailer", 10).await;
        let before = [
            entries_read(&subject, "pending_due").await,
            entries_read(&subject, "pending_lease").await,
        ];
        while store.claim(&[], 1).await.is_err() {}
        for _ in 0..CLAIMS {
            subject.advance(Duration::from_millis(40)).await;
            assert!(claim(&store, "mailer", 10).await.is_empty());
        }
        let after = [
            entries_read(&subject, "pending_due").await,
            entries_read(&subject, "pending_lease").await,
        ];
        let read = [after[0] - before[0], after[1] - before[1]];
        println!("entries read in {CLAIMS} claims: {read:?} of {COUNT} dead ones");
        let whole = i64::try_from(COUNT).unwrap();
        assert!(read.iter().all(|read| *read <= 3 * whole), "{read:?}");
        stranger.batch_execute("COMMIT").await.unwrap();
    })
    .await;
}
