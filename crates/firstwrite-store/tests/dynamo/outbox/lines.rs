//! Messages under one ordering key, written and delivered by several processes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use firstwrite_core::outbox::{
    ClaimStatus, MessageQuery, MessageState, Outbox as _, Resolution, protocol,
};
use firstwrite_core::{Fence, Message};
use firstwrite_store::DynamoStore;
use firstwrite_testkit::sample;

use super::{
    Duration, DynamoSubject, Which, claim, item_count, late, message, on_each, on_tables, settle,
};

/// The keys of what was delivered, by line.
type Done = HashMap<String, Vec<String>>;

fn ordered(key: &str) -> Message {
    message(key).ordered_by("card")
}

async fn claimed(store: &DynamoStore) -> Vec<String> {
    claim(store, 9).await.into_iter().map(|claimed_message| claimed_message.derived_key).collect()
}

/// Its number is smaller than that of the one which is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_written_by_a_clock_that_is_behind_waits_its_turn() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        store.enqueue(&ordered("1")).await.unwrap();
        let first = claim(&store, 9).await;
        late(&subject).await.enqueue(&ordered("earlier")).await.unwrap();
        store.enqueue(&ordered("2")).await.unwrap();
        assert!(claimed(&store).await.is_empty(), "while the first is on its way");
        assert_eq!(settle(&store, &first[0]).await, ClaimStatus::Current);
        let second = claim(&store, 9).await;
        assert_eq!((second.len(), &*second[0].derived_key), (1, "earlier:step"));
        assert_eq!(settle(&store, &second[0]).await, ClaimStatus::Current);
        assert_eq!(claimed(&store).await, ["2:step"]);
    })
    .await;
}

/// Whoever is given up in the middle of a line leaves no gap in which others are stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_dropped_while_it_waits_is_passed_over() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        for key in ["1", "2", "3"] {
            store.enqueue(&ordered(key)).await.unwrap();
        }
        let first = claim(&store, 9).await;
        let query = MessageQuery { limit: 9, ..MessageQuery::default() };
        let second = protocol::messages(&store, &query).await.unwrap().messages.remove(1);
        assert_eq!((second.state, second.due_at), (MessageState::Waiting, None));
        let by = sample::audit("not wanted");
        let never = Fence::from_u64(0);
        let held = protocol::resolve(&store, second.number, never, &Resolution::Dropped, &by)
            .await
            .unwrap();
        assert_eq!(held, ClaimStatus::Current);
        assert!(claimed(&store).await.is_empty(), "the first is still on its way");
        assert_eq!(settle(&store, &first[0]).await, ClaimStatus::Current);
        let third = claim(&store, 9).await;
        assert_eq!((third.len(), &*third[0].derived_key), (1, "3:step"));
        assert_eq!(settle(&store, &third[0]).await, ClaimStatus::Current);
        assert_eq!(item_count(&tables, &subject.url, "o").await, 0, "nothing is left of the line");
    })
    .await;
}

/// Writers and workers in three processes, at the same time: one at a time of each line is on its way, in the order
/// in which its writer wrote them, and none is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_grow_while_they_shrink_are_delivered_one_by_one() {
    const LINES: usize = 3;
    const LENGTH: usize = 12;
    on_tables(Which::Ministack, async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let writer = subject.rival().await;
        let writing = tokio::spawn(async move {
            for at in 0..LENGTH {
                for line in 0..LINES {
                    let key = format!("{line}-{at:02}");
                    let message = message(&key).ordered_by(&format!("line {line}"));
                    writer.enqueue(&message).await.unwrap();
                }
            }
        });
        let under_way: Arc<Mutex<HashSet<String>>> = Arc::default();
        let done: Arc<Mutex<Done>> = Arc::default();
        let mut workers = Vec::new();
        for _ in 0..3 {
            let store = subject.rival().await;
            let (under_way, done) = (Arc::clone(&under_way), Arc::clone(&done));
            workers.push(tokio::spawn(async move {
                let count = || done.lock().unwrap().values().map(Vec::len).sum::<usize>();
                while count() < LINES * LENGTH {
                    for claimed_message in claim(&store, 4).await {
                        let line = claimed_message.ordering_key.clone().unwrap();
                        assert!(under_way.lock().unwrap().insert(line.clone()), "two of {line}");
                        let key = claimed_message.derived_key.clone();
                        done.lock().unwrap().entry(line.clone()).or_default().push(key);
                        // Before the next one can be claimed.
                        under_way.lock().unwrap().remove(&line);
                        assert_eq!(settle(&store, &claimed_message).await, ClaimStatus::Current);
                    }
                    tokio::task::yield_now().await;
                }
            }));
        }
        writing.await.unwrap();
        for worker in workers {
            tokio::time::timeout(Duration::from_mins(1), worker).await.unwrap().unwrap();
        }
        for (line, keys) in done.lock().unwrap().iter() {
            assert!(keys.is_sorted() && keys.len() == LENGTH, "{line}: {keys:?}");
        }
        assert_eq!(item_count(&tables, &subject.url, "o").await, 0);
        assert_eq!(item_count(&tables, &subject.url, "m").await, 0);
        drop(subject);
    })
    .await;
}
