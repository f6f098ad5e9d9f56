//! A Redis store under test: a name space of its own, and a clock that a test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{BoxFuture, Change, Draft, Fence, OnLostAnswer, Policy, Store};
use firstwrite_store::{RedisOptions, RedisStore};
use firstwrite_testkit::{ManualClock, Subject, sample};

#[derive(Debug)]
pub(crate) struct RedisSubject {
    url: String,
    clock: ManualClock,
    open: Mutex<RedisStore>,
}

impl RedisSubject {
    pub(crate) async fn new(url: &str) -> Self {
        let clock = ManualClock::new();
        let store = connect(url, &clock).await;
        Self { url: url.to_owned(), clock, open: Mutex::new(store) }
    }

    pub(crate) fn redis(&self) -> RedisStore {
        self.open.lock().unwrap().clone()
    }

    /// A second store on the same keys, as another process has it.
    pub(crate) async fn rival(&self) -> RedisStore {
        connect(&self.url, &self.clock).await
    }
}

async fn connect(url: &str, clock: &ManualClock) -> RedisStore {
    RedisStore::migrate(url, RedisOptions::default()).await.unwrap();
    let options = RedisOptions::default().with_clock(clock.reader());
    RedisStore::connect_with(url, options).await.unwrap()
}

impl Subject for RedisSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.redis())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(by) })
    }

    /// Goes on with a new store that remembers nothing.
    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move {
            self.redis().close();
            let store = self.rival().await;
            *self.open.lock().unwrap() = store;
        }))
    }
}

/// The store at `url`, created if it was not there.
pub(crate) async fn created(url: &str) -> RedisStore {
    RedisStore::migrate(url, RedisOptions::default()).await.unwrap();
    RedisStore::connect(url).await.unwrap()
}

/// A reservation under `key`.
pub(crate) fn reserved(key: &str, fence: Fence) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    sample::reserved(&request, &sample::policy(OnLostAnswer::Resend), fence)
}

/// A record under `key` that is completed at once, with a body of this many bytes.
pub(crate) fn completed(key: &str, fence: Fence, body_bytes: usize) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    let outcome = sample::outcome(201, &"x".repeat(body_bytes));
    sample::completed(&request, &Policy::default(), fence, outcome)
}

/// The owner's word that it is done.
pub(crate) fn done() -> Change {
    let retention = Policy::default().record_retention();
    Change::Complete { outcome: sample::outcome(201, "done"), retention }
}
