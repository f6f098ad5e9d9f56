//! Doubt, and what is durable when: before a byte is sent, before anybody learns of an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::storage::{Inserted, Page, StorageError, StorageErrorKind, Stored};
use firstwrite_client::transport::{Failure, Reply};
use firstwrite_client::{
    BoxFuture, Client, EndKind, Error, MemoryStorage, State, Storage, Transport,
};

use crate::world::{Act, TestClock, World, answer, open, problem, seconds, seeded};

#[tokio::test(start_paused = true)]
async fn what_ran_nothing_gives_back_the_doubt_that_stood_before() {
    let still = Duration::from_millis(1);
    for (acts, in_doubt) in [
        (vec![Act::NotSent], false),
        (vec![problem(429, "rate-limited", true)], false),
        (vec![answer(429, &[("retry-after", "9")])], false),
        (vec![answer(503, &[("retry-after", "9")])], true),
        (vec![problem(503, "store-unavailable", true)], false),
        (vec![Act::Lost], true),
        (vec![problem(409, "in-progress", true)], true),
    ] {
        let name = format!("{acts:?}");
        let world = World::new(acts);
        let pay = world.open("cart").await;
        let error = pay.send_for(still).await.unwrap_err();
        assert_eq!(error.pending().unwrap().is_in_doubt, in_doubt, "{name}");
        assert_eq!(pay.snapshot().await.unwrap().is_in_doubt, in_doubt, "{name}");
    }
    // Doubt that stood before stays.
    let world = World::new([
        Act::Lost,
        problem(429, "rate-limited", true),
        problem(400, "key-invalid", false),
    ]);
    let end = world.open("cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Unknown, false));
    // Without it the same answer is a refusal.
    let world = World::new([
        Act::NotSent,
        problem(429, "rate-limited", true),
        problem(400, "key-invalid", false),
    ]);
    let end = world.open("cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Refused, true));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_died_while_it_sent_leaves_a_doubt_and_its_key() {
    let world = World::new([
        Act::After(seconds(999), Box::new(Act::Lost)),
        problem(400, "key-invalid", false),
    ]);
    let pay = world.open("cart").await;
    // The process is gone: its future is dropped in the middle of the attempt.
    let dying = tokio::time::timeout(seconds(1), pay.send()).await;
    assert!(dying.is_err());

    let again = world.open("cart").await;
    let snapshot = again.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.state, snapshot.attempts, snapshot.is_in_doubt),
        (State::Sending, 1, true)
    );
    assert_eq!(again.send().await.unwrap().kind(), EndKind::Unknown);
    let seen = world.server.seen();
    assert_eq!(seen[0].key(), seen[1].key());
}

/// A storage that can be made to fail, and counts what it wrote.
#[derive(Debug, Default)]
struct Frail {
    inner: MemoryStorage,
    fails: AtomicBool,
}

impl Frail {
    fn work(&self) -> Result<(), StorageError> {
        if self.fails.load(Ordering::Relaxed) {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            let doing = "writing the intent \"cart\"";
            return Err(StorageError::new(StorageErrorKind::Unavailable, doing, Some(full.into())));
        }
        Ok(())
    }
}

impl Storage for Frail {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>> {
        self.inner.get(name)
    }

    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>> {
        Box::pin(async move {
            self.work()?;
            self.inner.insert(entry, entries_max).await
        })
    }

    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>> {
        Box::pin(async move {
            self.work()?;
            self.inner.replace(revision, entry).await
        })
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            self.work()?;
            self.inner.remove(name, revision).await
        })
    }

    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>> {
        self.inner.list(after)
    }
}

/// Looks, at the moment a request would leave, at what is written down; then breaks the storage, if told to.
struct Watchful {
    storage: Arc<Frail>,
    looks: AtomicU32,
    breaks: bool,
}

impl fmt::Debug for Watchful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchful")
    }
}

impl Transport for Watchful {
    fn send(
        &self,
        request: http::Request<Bytes>,
        _: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            let attempt = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
            let stored = self.storage.get("cart").await.unwrap().expect("the entry stands");
            let text = String::from_utf8_lossy(&stored.document).into_owned();
            let key = request.headers()["idempotency-key"].to_str().unwrap().trim_matches('"');
            assert!(text.contains(&format!("\"key\":\"{key}\"")), "the key is written down");
            assert!(text.contains(&format!("\"attempts\":{attempt}")), "the attempt is marked");
            assert!(text.contains("\"doubt\":true"), "so is the doubt");
            if self.breaks && attempt == 1 {
                self.storage.fails.store(true, Ordering::Relaxed);
            }
            let is_last = self.breaks || attempt == 3;
            let Act::Answer(reply) = answer(if is_last { 201 } else { 503 }, &[]) else {
                panic!("it is an answer")
            };
            Ok(reply)
        })
    }
}

fn watched(storage: &Arc<Frail>, breaks: bool) -> (Client, Arc<Watchful>) {
    let watchful =
        Arc::new(Watchful { storage: Arc::clone(storage), looks: AtomicU32::new(0), breaks });
    let builder = Client::builder(Arc::clone(storage), Arc::clone(&watchful));
    (builder.clock(TestClock::new()).randomness(seeded(5)).build(), watchful)
}

#[tokio::test(start_paused = true)]
async fn no_byte_is_sent_before_key_attempt_and_doubt_are_written_down() {
    let storage = Arc::new(Frail::default());
    let (client, watchful) = watched(&storage, false);
    let end = open(&client, "cart").await.send_for(seconds(99)).await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    assert_eq!(watchful.looks.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_an_error_before_anything_is_sent() {
    let storage = Arc::new(Frail::default());
    let (client, watchful) = watched(&storage, false);
    storage.fails.store(true, Ordering::Relaxed);
    let draft = || client.intent("cart").post_json(crate::world::URL, &crate::world::order());
    let error = draft().open().await.unwrap_err();
    let expected = "writing the intent \"cart\": the storage cannot be used: no storage space";
    assert_eq!(error.to_string(), expected);

    storage.fails.store(false, Ordering::Relaxed);
    let pay = draft().open().await.unwrap();
    storage.fails.store(true, Ordering::Relaxed);
    assert_eq!(pay.send().await.unwrap_err().to_string(), expected);
    assert_eq!(watchful.looks.load(Ordering::Relaxed), 0, "nothing was sent");

    storage.fails.store(false, Ordering::Relaxed);
    assert_eq!(pay.send_for(seconds(99)).await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_written_is_not_told_and_not_lost() {
    let storage = Arc::new(Frail::default());
    let (client, watchful) = watched(&storage, true);
    let pay = open(&client, "cart").await;
    assert!(matches!(pay.send().await, Err(Error::Storage(_))));
    assert_eq!(watchful.looks.load(Ordering::Relaxed), 1);
    let snapshot = pay.snapshot().await.unwrap();
    assert_eq!((snapshot.attempts, snapshot.is_in_doubt, snapshot.end), (1, true, None));
    // There is room again: the replay ends it.
    storage.fails.store(false, Ordering::Relaxed);
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
}
