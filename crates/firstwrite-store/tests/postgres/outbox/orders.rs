//! Orders: of the messages under one ordering key, one at a time and the oldest first.

use std::collections::HashMap;
use std::time::Duration;

use firstwrite_core::outbox::{
    Cause, ClaimStatus, Ending, MessageQuery, MessageState, Next, Outbox, Resolution, Sent,
    protocol,
};
use firstwrite_store::PostgresStore;

use super::{
    claim, deliver, enqueue, keys, message, number, settle, settlement, somebody, states, subject,
};
use crate::server::{Way, client, on_database};

async fn ordered(store: &PostgresStore, keys: &[&str], order: &str) {
    for key in keys {
        store.enqueue(&message(key, "mailer").ordered_by(order)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_of_an_order_goes_when_the_one_before_has_arrived() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        ordered(&store, &["a1", "a2", "a3"], "a").await;
        ordered(&store, &["b1"], "b").await;
        enqueue(&store, &["free"], "mailer").await;
        let first = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&first), ["a1", "b1", "free"]);
        assert!(claim(&store, "mailer", 9).await.is_empty());
        // One that waits again keeps its place.
        let later = Next::Waiting { pause: Duration::ZERO, counts: true, sent: Sent::No };
        settle(&store, &[settlement(&first[0], Ending::Retry, later)]).await;
        ordered(&store, &["a4"], "a").await;
        for expected in ["a1", "a2", "a3", "a4"] {
            let claimed_messages = claim(&store, "mailer", 9).await;
            assert_eq!(keys(&claimed_messages), [expected]);
            deliver(&store, &claimed_messages).await;
        }
        assert!(claim(&store, "mailer", 9).await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_for_people_holds_its_order_up_until_they_decide() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        ordered(&store, &["a1", "a2", "a3"], "a").await;
        let first = claim(&store, "mailer", 9).await;
        let dead = settlement(&first[0], Ending::Refused, Next::Dead(Cause::Refused));
        settle(&store, &[dead]).await;
        assert!(claim(&store, "mailer", 9).await.is_empty());
        let by = somebody("drop");
        let (number, fence) = (first[0].number, first[0].fence);
        let dropped =
            protocol::resolve(&store, number, fence, &Resolution::Dropped, &by).await.unwrap();
        assert_eq!(dropped, ClaimStatus::Current);
        let second = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&second), ["a2"]);
        // One that is blocked can be dropped too, and lets nobody go.
        let query =
            MessageQuery { derived_key: Some("a3:s".to_owned()), limit: 9, ..Default::default() };
        let blocked = protocol::messages(&store, &query).await.unwrap().messages.remove(0);
        assert_eq!((blocked.state, blocked.due_at), (MessageState::Waiting, None));
        let dropped =
            protocol::resolve(&store, blocked.number, blocked.fence, &Resolution::Dropped, &by);
        assert_eq!(dropped.await.unwrap(), ClaimStatus::Current);
        ordered(&store, &["a4"], "a").await;
        assert!(claim(&store, "mailer", 9).await.is_empty());
        deliver(&store, &second).await;
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["a4"]);
        let dropped =
            states(&store).await.iter().filter(|one| one.1 == MessageState::Dropped).count();
        assert_eq!(dropped, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_comes_while_its_predecessor_is_being_settled_is_not_stuck() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        ordered(&store, &["a1"], "a").await;
        let first = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&first), ["a1"]);
        // What settling it does, up to the moment before it commits; it has found no successor.
        let settling = format!(
            "BEGIN;
             DELETE FROM {0}.pending;
             INSERT INTO {0}.deliveries (message, fence, at, ending, detail)
             SELECT message, {1}, {0}.now(), 0, 'arrived' FROM {0}.messages",
            subject.schema(),
            first[0].fence.as_u64()
        );
        stranger.batch_execute(&settling).await.unwrap();
        ordered(&store, &["a2"], "a").await;
        assert!(claim(&store, "mailer", 9).await.is_empty());
        stranger.batch_execute("COMMIT").await.unwrap();
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["a2"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_lets_go_what_was_missed() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        ordered(&store, &["a1", "a2"], "a").await;
        ordered(&store, &["b1", "b2"], "b").await;
        claim(&store, "mailer", 9).await;
        let vanish = "DELETE FROM messages WHERE derived_key = 'a1:s';
                      DELETE FROM pending WHERE message NOT IN (SELECT message FROM messages)";
        subject.admin().batch_execute(vanish).await.unwrap();
        assert!(claim(&store, "mailer", 9).await.is_empty());
        store.upkeep(Duration::from_hours(1), 10).await.unwrap();
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["a2"], "b2 has a predecessor");
    })
    .await;
}

/// Takes messages in, and delivers them at the same moment elsewhere, again and again: nothing is stuck and
/// nothing is overtaken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_kept_while_several_write_and_several_deliver() {
    on_database(Way::Direct, &[], async |database| {
        const EACH: usize = 40;
        let subject = subject(&database).await;
        let store = subject.postgres();
        // One writer for each order, so that it is known.
        let writers: Vec<_> = (0..5)
            .map(|order| {
                let store = store.clone();
                tokio::spawn(async move {
                    for at in 0..EACH {
                        let key = format!("{order}-{at:03}");
                        ordered(&store, &[&key], &format!("o-{order}")).await;
                    }
                })
            })
            .collect();
        let (log, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
        let mut workers = Vec::new();
        for _ in 0..3 {
            let (rival, log) = (subject.rival().await, log.clone());
            workers.push(tokio::spawn(async move {
                for _ in 0..2000 {
                    let claimed_messages = claim(&rival, "mailer", 4).await;
                    for key in keys(&claimed_messages) {
                        let _closed = log.send(key.to_owned());
                    }
                    deliver(&rival, &claimed_messages).await;
                    if log.is_closed() {
                        break;
                    }
                }
            }));
        }
        // If a worker fails, the others have nothing to wait for.
        drop(log);
        let mut last: HashMap<char, String> = HashMap::new();
        for _ in 0..5 * EACH {
            let key = arrivals.recv().await.unwrap();
            let order = key.chars().next().unwrap();
            if let Some(before) = last.insert(order, key.clone()) {
                assert!(before < key, "{key} came behind {before}");
            }
        }
        arrivals.close();
        for task in writers.into_iter().chain(workers) {
            task.await.unwrap();
        }
        assert_eq!(number(&subject, "SELECT count(*) FROM pending").await, 0);
    })
    .await;
}
