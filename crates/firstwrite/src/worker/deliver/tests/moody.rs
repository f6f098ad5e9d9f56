//! A store that is away for a while, and one that goes on saying that there is something to claim.

use std::sync::atomic::AtomicBool;

use firstwrite_core::outbox::{
    Claimed, Counted, Held, MessageNumber, MessagePage, MessageStory, Received, Resolution,
    Settlement, Switch, Want, WrittenPage, WrittenQuery,
};
use firstwrite_core::{
    AuditEntry, Audited, Capabilities, Change, Draft, Found, Guard, Inserted, Page, Query,
    RecordId, StoreErrorKind, Swapped,
};

use super::*;

type Future<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The store in memory, with moods.
#[derive(Debug)]
struct Moody {
    memory: MemoryStore,
    /// So many claims fail first.
    away_for: AtomicUsize,
    claim_count: AtomicUsize,
    /// There is word since the last claim.
    has_word: AtomicBool,
    /// How often it was asked for word.
    asked_count: AtomicUsize,
}

fn moody(away_for: usize) -> Arc<Moody> {
    let (claim_count, asked_count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let away_for = AtomicUsize::new(away_for);
    let has_word = AtomicBool::new(false);
    Arc::new(Moody { memory: store(), away_for, claim_count, has_word, asked_count })
}

impl Outbox for Moody {
    fn enqueue<'a>(&'a self, message: &'a Message) -> Future<'a, ()> {
        Outbox::enqueue(&self.memory, message)
    }

    fn claim<'a>(&'a self, wants: &'a [Want], nonce: u64) -> Future<'a, Claimed> {
        self.claim_count.fetch_add(1, Ordering::SeqCst);
        self.has_word.store(false, Ordering::SeqCst);
        let left = |left: usize| left.checked_sub(1);
        if self.away_for.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            let away = StoreError::definite(StoreErrorKind::Unavailable, "claiming");
            return Box::pin(async move { Err(away) });
        }
        self.memory.claim(wants, nonce)
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> Future<'a, Vec<Held>> {
        self.memory.settle(receipts, settlements)
    }

    fn switch<'a>(&'a self, destination: &'a str, switch: &'a Switch) -> Future<'a, ()> {
        self.memory.switch(destination, switch)
    }

    fn pause<'a>(&'a self, destination: &'a str, by: &'a AuditEntry) -> Future<'a, ()> {
        self.memory.pause(destination, by)
    }

    fn resume<'a>(&'a self, destination: &'a str, by: &'a AuditEntry) -> Future<'a, ()> {
        self.memory.resume(destination, by)
    }

    fn destinations(&self) -> Future<'_, Vec<DestinationView>> {
        self.memory.destinations()
    }

    fn messages<'a>(&'a self, query: &'a MessageQuery) -> Future<'a, MessagePage> {
        Outbox::messages(&self.memory, query)
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> Future<'a, Counted> {
        self.memory.count(query)
    }

    fn written<'a>(&'a self, query: &'a WrittenQuery) -> Future<'a, WrittenPage> {
        self.memory.written(query)
    }

    fn message(&self, number: MessageNumber) -> Future<'_, Option<MessageStory>> {
        self.memory.message(number)
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> Future<'a, usize> {
        self.memory.redrive(query, limit, by)
    }

    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: firstwrite_core::Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> Future<'a, Held> {
        self.memory.resolve(number, seen, resolution, by)
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> Future<'_, usize> {
        self.memory.upkeep(kept_for, limit)
    }

    /// Says so at once, however often it is asked, until a claim begins.
    fn nudged(&self) -> BoxFuture<'_, ()> {
        self.asked_count.fetch_add(1, Ordering::SeqCst);
        if self.has_word.load(Ordering::SeqCst) {
            Box::pin(std::future::ready(()))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

impl Store for Moody {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> Future<'a, Inserted> {
        self.memory.insert(draft)
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> Future<'a, Swapped> {
        self.memory.swap(id, guard, change, audit)
    }

    fn get(&self, id: RecordId) -> Future<'_, Option<Found>> {
        self.memory.get(id)
    }

    fn list<'a>(&'a self, query: &'a Query) -> Future<'a, Page> {
        self.memory.list(query)
    }

    fn lapsed(&self, limit: usize) -> Future<'_, Vec<Found>> {
        self.memory.lapsed(limit)
    }

    fn reap(&self, limit: usize) -> Future<'_, usize> {
        self.memory.reap(limit)
    }

    fn audits(&self, id: RecordId) -> Future<'_, Vec<Audited>> {
        self.memory.audits(id)
    }

    fn now(&self) -> Future<'_, Timestamp> {
        self.memory.now()
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        Some(self)
    }
}

fn start(store: &Arc<Moody>, terms: Terms, carrier: &Arc<Scripted>) -> Worker {
    let carrier: Arc<dyn Carrier> = Arc::clone(carrier) as _;
    let destination = Destination::new("provider", terms, carrier);
    let deliver = Deliver::new(Arc::clone(store) as _, vec![destination]).unwrap();
    Worker::start(Arc::clone(store) as _, Schedule::default()).delivering(deliver)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_asked_again_and_not_in_a_hurry() {
    let (store, carrier) = (moody(5), Arc::new(Scripted::default()));
    enqueue(&store.memory, &["a"]).await;
    let worker = start(&store, honouring(), &carrier);
    // Pauses of about 1, 2, 4, 8 and 16 seconds, each up to one and a half times that.
    pass(Duration::from_mins(1)).await;
    assert_eq!(carrier.got(), ["a:pay"]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn word_that_cannot_be_acted_on_is_not_heard_again_and_again() {
    let gate = Some(Semaphore::new(0));
    let (store, carrier) = (moody(0), Arc::new(Scripted { gate, ..Scripted::default() }));
    enqueue(&store.memory, &["a", "b"]).await;
    let terms = Terms { concurrency_max: 1, ..honouring() };
    let worker = start(&store, terms, &carrier);
    pass(Duration::from_secs(1)).await;
    store.has_word.store(true, Ordering::SeqCst);
    pass(Duration::from_secs(10)).await;
    // The only slot is taken: looks by the clock are all there is to do.
    let asked = store.asked_count.load(Ordering::SeqCst);
    assert!(asked < 100, "asked for word {asked} times");
    assert_eq!(store.claim_count.load(Ordering::SeqCst), 1);
    carrier.gate.as_ref().unwrap().add_permits(2);
    pass(Duration::from_secs(5)).await;
    assert_eq!(carrier.got(), ["a:pay", "b:pay"]);
    worker.stop().await;
}
