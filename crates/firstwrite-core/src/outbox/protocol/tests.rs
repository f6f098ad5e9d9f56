//! Marking what a lost history may have sent, over more messages than one page, and while workers move them.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;
use crate::outbox::{
    ClaimRequest, Claimed, ClaimedMessage, Delivery, Ending, MessageStory, Next, ScanPage, Sent,
};
use crate::{BoxFuture, Key, MemoryStore, Message, Tenant};

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the store in memory waits for nothing"),
    }
}

/// An outbox in which a worker claims or settles between a reading of messages and the moves that follow.
#[derive(Debug)]
struct Restless {
    memory: MemoryStore,
    /// Number of scans and looks after which something is moved.
    moves_left: AtomicUsize,
    held: std::sync::Mutex<Vec<ClaimedMessage>>,
}

const WRITTEN_AT: Timestamp = Timestamp::from_millis(1_000_000);

fn restless(messages: usize, moves_left: usize) -> Restless {
    let memory = MemoryStore::new(|| WRITTEN_AT);
    let tenant = Tenant::new("acme").unwrap();
    for number in 0..messages {
        let key = Key::new(&format!("k{number}")).unwrap();
        let message = Message::new(&tenant, &key, "pay", "provider", Bytes::new()).unwrap();
        now(memory.enqueue(&message)).unwrap();
    }
    Restless { memory, moves_left: AtomicUsize::new(moves_left), held: std::sync::Mutex::default() }
}

impl Restless {
    /// Claims what is due, for no time at all, so that it can be claimed again at once.
    async fn stir(&self) {
        let left = |count: usize| count.checked_sub(1);
        if self.moves_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
            return;
        }
        let request = ClaimRequest {
            destination: "provider".to_owned(),
            count_max: 1000,
            lease_for: Duration::ZERO,
        };
        let claimed = self.memory.claim(&[request], 1).await.unwrap().messages;
        self.held.lock().unwrap().extend(claimed);
    }

    fn views(&self) -> Vec<MessageView> {
        let query = MessageQuery { limit: MessageQuery::LIMIT_MAX, ..MessageQuery::default() };
        now(messages(&self.memory, &query)).unwrap().messages
    }
}

impl Outbox for Restless {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        self.memory.enqueue(message)
    }

    fn claim<'a>(
        &'a self,
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        self.memory.claim(requests, nonce)
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        self.memory.apply(receipts, moves)
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.memory.put_destination(destination, change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        self.memory.destinations()
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(async move {
            let story = self.memory.message(number).await;
            self.stir().await;
            story
        })
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        Box::pin(async move {
            let page = self.memory.scan(scan).await;
            self.stir().await;
            page
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.upkeep(kept_for, limit)
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        self.memory.wait_for_work()
    }
}

fn by() -> AuditEntry {
    let [actor, action, reason] = ["ann", "clear history loss", "compared"].map(str::to_owned);
    AuditEntry { actor, action, reason }
}

#[test]
fn every_page_is_marked() {
    let count = 2 * MARKED_AT_ONCE + 1;
    let outbox = restless(count, 0);
    assert_eq!(now(mark_maybe_sent(&outbox, &by(), async || {})).unwrap(), count);
    assert!(outbox.views().iter().all(|view| view.maybe_sent_at == Some(WRITTEN_AT)));
    let none = restless(0, 0);
    assert_eq!(now(mark_maybe_sent(&none, &by(), async || {})).unwrap(), 0);
}

#[test]
fn what_a_worker_claims_meanwhile_does_not_escape() {
    // The last one takes what the marking has read a second time.
    for moves in [1, 2, 7] {
        let outbox = restless(3, moves);
        assert_eq!(now(mark_maybe_sent(&outbox, &by(), async || {})).unwrap(), 3);
        for view in outbox.views() {
            assert_eq!(view.maybe_sent_at, Some(WRITTEN_AT), "{view:?}");
        }
        let held = std::mem::take(&mut *outbox.held.lock().unwrap());
        assert!(held.len() >= 3);
        let settlement = |message: &ClaimedMessage| Settlement {
            claim: message.claim(),
            delivery: Some(Delivery::new(Ending::Retry, "not reached")),
            next: Next::Waiting { pause: Duration::ZERO, counts: true, sent: Sent::No },
            answer: None,
        };
        let settlements: Vec<Settlement> = held.iter().map(settlement).collect();
        let statuses = now(settle(&outbox, &[], &settlements)).unwrap();
        assert!(statuses.iter().all(|status| *status == ClaimStatus::Lost), "{statuses:?}");
        assert!(outbox.views().iter().all(|view| view.maybe_sent_at == Some(WRITTEN_AT)));
    }
}

#[test]
fn messages_that_never_stand_still_are_an_error_and_no_endless_loop() {
    let outbox = restless(1, usize::MAX);
    let pauses = std::cell::Cell::new(0);
    let pause = async || pauses.set(pauses.get() + 1);
    let error = now(mark_maybe_sent(&outbox, &by(), pause)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(pauses.get(), MARK_TRIES_MAX - 1, "it pauses between any two tries");
}
