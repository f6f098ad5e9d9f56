//! A store that is away for a while, and one that goes on saying that there is something to claim.

use std::sync::atomic::AtomicBool;

use firstwrite_core::StoreErrorKind;
use firstwrite_core::delegate_store;
use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, Claimed, DestinationChange, HistoryRow, MessageNumber, MessageStory,
    Move, Scan, ScanPage, protocol,
};

use super::*;

type Future<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The store in memory, with moods.
#[derive(Debug)]
struct FlakyStore {
    memory: MemoryStore,
    /// Number of claims that fail first.
    away_for: AtomicUsize,
    /// Number of settlements that fail first.
    settling_fails_for: AtomicUsize,
    /// Number of receipts and of settlements in each batch written.
    written: Mutex<Vec<(usize, usize)>>,
    /// Each claim takes one before it is answered; none is needed if there is no gate.
    claim_gate: Option<Semaphore>,
    claim_count: AtomicUsize,
    /// A notification has arrived since the last claim.
    has_word: AtomicBool,
    /// Number of times that a worker asked for a notification.
    asked_count: AtomicUsize,
}

fn flaky_store(away_for: usize) -> FlakyStore {
    let (claim_count, asked_count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let away_for = AtomicUsize::new(away_for);
    let has_word = AtomicBool::new(false);
    let (settling_fails_for, written) = (AtomicUsize::new(0), Mutex::default());
    FlakyStore {
        memory: store(),
        away_for,
        settling_fails_for,
        written,
        claim_gate: None,
        claim_count,
        has_word,
        asked_count,
    }
}

fn takes_one(left: &AtomicUsize) -> bool {
    let less = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

fn away(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, doing)
}

impl Outbox for FlakyStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> Future<'a, ()> {
        Outbox::enqueue(&self.memory, message)
    }

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest], nonce: u64) -> Future<'a, Claimed> {
        self.claim_count.fetch_add(1, Ordering::SeqCst);
        self.has_word.store(false, Ordering::SeqCst);
        if takes_one(&self.away_for) {
            return Box::pin(async { Err(away("claiming")) });
        }
        Box::pin(async move {
            let claimed = self.memory.claim(requests, nonce).await;
            if let Some(gate) = &self.claim_gate {
                gate.acquire().await.unwrap().forget();
            }
            claimed
        })
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> Future<'a, Vec<ClaimStatus>> {
        if takes_one(&self.settling_fails_for) {
            return Box::pin(async { Err(away("settling")) });
        }
        self.written.lock().unwrap().push((receipts.len(), moves.len()));
        self.memory.apply(receipts, moves)
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> Future<'a, ()> {
        self.memory.put_destination(destination, change)
    }

    fn destinations(&self) -> Future<'_, Vec<DestinationView>> {
        self.memory.destinations()
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> Future<'a, ScanPage> {
        self.memory.scan(scan)
    }

    fn message(&self, number: MessageNumber) -> Future<'_, Option<MessageStory>> {
        self.memory.message(number)
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> Future<'_, usize> {
        self.memory.upkeep(kept_for, limit)
    }

    /// Says so at once, however often it is asked, until a claim begins.
    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        self.asked_count.fetch_add(1, Ordering::SeqCst);
        if self.has_word.load(Ordering::SeqCst) {
            Box::pin(std::future::ready(()))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

impl Store for FlakyStore {
    delegate_store!(
        memory:
            capabilities, insert, swap, get, list, usage, reap, audits, now,
            check_history
    );

    fn outbox(&self) -> Option<&dyn Outbox> {
        Some(self)
    }
}

fn deliver(store: &Arc<FlakyStore>, terms: Terms, carrier: &Arc<Scripted>) -> Deliver {
    let carrier: Arc<dyn Carrier> = Arc::clone(carrier) as _;
    let destination = Destination::new("provider", terms, carrier);
    Deliver::new(Arc::clone(store) as _, vec![destination]).unwrap()
}

fn start(store: &Arc<FlakyStore>, terms: Terms, carrier: &Arc<Scripted>) -> Worker {
    let deliver = deliver(store, terms, carrier);
    Worker::start(Arc::clone(store) as _, Schedule::default()).delivering(deliver)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_asked_again_and_not_in_a_hurry() {
    let (store, carrier) = (Arc::new(flaky_store(5)), Arc::new(Scripted::default()));
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
    let (store, carrier) =
        (Arc::new(flaky_store(0)), Arc::new(Scripted { gate, ..Scripted::default() }));
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

#[tokio::test(start_paused = true)]
async fn a_providers_id_is_written_down_before_its_message_is_settled() {
    for (ending, written) in [(None, vec![(1, 0), (0, 1)]), (Some(Ending::Refused), vec![(0, 1)])] {
        let (store, carrier) = (Arc::new(flaky_store(0)), Arc::new(Scripted::default()));
        enqueue(&store.memory, &["a"]).await;
        carrier.plan(ending);
        deliver(&store, honouring(), &carrier).run_once().await.unwrap();
        assert_eq!(*store.written.lock().unwrap(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_down_is_kept_and_not_sent_again() {
    for (ending, state) in
        [(None, MessageState::Delivered), (Some(Ending::Refused), MessageState::Dead)]
    {
        let (store, carrier) = (Arc::new(flaky_store(0)), Arc::new(Scripted::default()));
        enqueue(&store.memory, &["a"]).await;
        carrier.plan(ending);
        store.settling_fails_for.store(2, Ordering::SeqCst);
        let worker = start(&store, honouring(), &carrier);
        // Longer than two pauses, and shorter than the lease.
        pass(Duration::from_secs(30)).await;
        assert_eq!(states(&store.memory).await, [state]);
        assert_eq!(carrier.got(), ["a:pay"]);
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_even_if_the_store_was_away_when_it_was_noticed() {
    let gate = Some(Semaphore::new(0));
    let (store, carrier) =
        (Arc::new(flaky_store(0)), Arc::new(Scripted { gate, ..Scripted::default() }));
    enqueue(&store.memory, &["a", "b", "c", "d", "e"]).await;
    carrier.plan(vec![Ending::Retry; 5]);
    let worker = start(&store, honouring(), &carrier);
    carrier.gate.as_ref().unwrap().add_permits(4);
    pass(Duration::from_secs(5)).await;
    store.settling_fails_for.store(2, Ordering::SeqCst);
    carrier.gate.as_ref().unwrap().add_permits(1);
    pass(Duration::from_secs(10)).await;
    assert_eq!((carrier.got().len(), provider(&store.memory).await.opening_count), (5, 1));
    carrier.gate.as_ref().unwrap().add_permits(100);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_well_within_its_lease_is_given_back_unsent() {
    let store = Arc::new(FlakyStore { claim_gate: Some(Semaphore::new(0)), ..flaky_store(0) });
    let carrier = Arc::new(Scripted::default());
    enqueue(&store.memory, &["a"]).await;
    // It does not recognise keys: what may have been sent would be held.
    let deliver = deliver(&store, Terms::default(), &carrier);
    let late = tokio::spawn({
        let deliver = deliver.clone();
        async move { deliver.run_once().await }
    });
    pass(2 * Terms::LEASE_MARGIN).await;
    store.claim_gate.as_ref().unwrap().add_permits(2);
    assert_eq!(late.await.unwrap().unwrap().waiting, 1);
    assert_eq!(carrier.got(), Vec::<String>::new());
    let query = MessageQuery { limit: 1, ..MessageQuery::default() };
    let given_back = protocol::messages(&*store, &query).await.unwrap().messages.remove(0);
    assert_eq!((given_back.delivery_count, given_back.maybe_sent_at), (0, None));
    assert_eq!(deliver.run_once().await.unwrap().delivered, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_while_a_worker_stops_is_delivered() {
    let store = Arc::new(FlakyStore { claim_gate: Some(Semaphore::new(0)), ..flaky_store(0) });
    let carrier = Arc::new(Scripted::default());
    enqueue(&store.memory, &["a"]).await;
    let worker = start(&store, honouring(), &carrier);
    pass(Duration::from_secs(1)).await;
    let stopping = tokio::spawn(worker.stop());
    pass(Duration::from_secs(1)).await;
    store.claim_gate.as_ref().unwrap().add_permits(1);
    stopping.await.unwrap();
    assert_eq!(states(&store.memory).await, [MessageState::Delivered]);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_a_worker_waits_for_a_few_tries_and_not_for_ever() {
    for (fails_for, state) in [(2, MessageState::Delivered), (usize::MAX, MessageState::Sending)] {
        let gate = Some(Semaphore::new(0));
        let (store, carrier) =
            (Arc::new(flaky_store(0)), Arc::new(Scripted { gate, ..Scripted::default() }));
        enqueue(&store.memory, &["a"]).await;
        let worker = start(&store, honouring(), &carrier);
        pass(Duration::from_secs(1)).await;
        store.settling_fails_for.store(fails_for, Ordering::SeqCst);
        let stopping = tokio::spawn(worker.stop());
        pass(Duration::from_secs(1)).await;
        carrier.gate.as_ref().unwrap().add_permits(1);
        stopping.await.unwrap();
        assert_eq!(states(&store.memory).await, [state]);
    }
}
