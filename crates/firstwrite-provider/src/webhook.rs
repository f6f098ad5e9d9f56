//! Sends webhooks about payments from a task of its own: a response never waits for a webhook.
//!
//! The ledger says which webhooks are owed, in the line of their payment, and which of them were accepted. The
//! provider sends the others again at its next start, so a crash of either side loses none.

mod signature;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{Method, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time;

pub use signature::Secret;

use crate::behaviour::Webhooks;
use crate::clock::Clock;
use crate::payment::Payment;
use crate::writer::WriterHandle;

/// Webhooks that wait; further ones are left to the next start, with a warning.
const QUEUE_MAX: usize = 10_000;
/// Webhooks that are tried again side by side; with more, the next one waits.
const RETRIES_MAX: usize = 256;
/// The pause between two tries grows to this at most.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// A receiver that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Largest part of a receiver's response that is read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Number of webhooks by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WebhookCounts {
    /// Answered with 2xx, repetitions included.
    pub delivered: u64,
    /// Left to the next start: after the last try, or because too many waited.
    pub given_up: u64,
}

/// Queue of payments that need a webhook.
#[derive(Debug)]
pub(crate) struct Mailbox {
    events: mpsc::Sender<Event>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    given_up: AtomicU64,
}

/// One webhook and where it goes.
#[derive(Clone, Debug)]
struct Event {
    /// The same in every delivery.
    id: String,
    /// Which payment it tells of.
    payment: String,
    body: Bytes,
    to: Arc<Webhooks>,
}

/// Sends what lies in the mailbox.
pub(crate) struct Postman {
    events: mpsc::Receiver<Event>,
    sender: Sender,
    held: Vec<Event>,
    retries: JoinSet<()>,
    retry_places: Arc<Semaphore>,
}

#[derive(Clone)]
struct Sender {
    client: Client<HttpConnector, Full<Bytes>>,
    clock: Clock,
    counters: Arc<Counters>,
    writer: WriterHandle,
}

pub(crate) fn mailbox(clock: Clock, writer: WriterHandle) -> (Mailbox, Postman) {
    let (into, events) = mpsc::channel(QUEUE_MAX);
    let counters = Arc::<Counters>::default();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let sender = Sender { client, clock, counters: Arc::clone(&counters), writer };
    let postman = Postman {
        events,
        sender,
        held: Vec::new(),
        retries: JoinSet::new(),
        retry_places: Arc::new(Semaphore::new(RETRIES_MAX)),
    };
    (Mailbox { events: into, counters }, postman)
}

impl Mailbox {
    /// Leaves word that `payment` was made.
    pub(crate) fn settled(&self, payment: &Payment, to: Arc<Webhooks>) {
        if let Err(error) = self.events.try_send(Event::settled(payment, to)) {
            tracing::warn!(%error, "a webhook is left to the next start");
            self.counters.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues payments whose webhook was not accepted before the restart; waits while the queue is full.
    pub(crate) async fn settled_before(&self, payments: &[Payment], to: &Arc<Webhooks>) {
        for payment in payments {
            if self.events.send(Event::settled(payment, Arc::clone(to))).await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn counts(&self) -> WebhookCounts {
        WebhookCounts {
            delivered: self.counters.delivered.load(Ordering::Relaxed),
            given_up: self.counters.given_up.load(Ordering::Relaxed),
        }
    }
}

impl Event {
    fn settled(payment: &Payment, to: Arc<Webhooks>) -> Self {
        // One payment, one event: its number is enough for an id.
        let id = payment.id.replacen("pay_", "evt_", 1);
        let body = serde_json::json!({ "id": id, "type": "payment.settled", "data": payment });
        Self { id, payment: payment.id.clone(), body: Bytes::from(body.to_string()), to }
    }
}

impl Postman {
    /// Sends until the [`Mailbox`] is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let next = match self.held.first().map(|event| event.to.hold_for) {
                None => self.events.recv().await,
                Some(hold_for) => match time::timeout(hold_for, self.events.recv()).await {
                    Ok(next) => next,
                    Err(_elapsed) => {
                        self.send_held().await;
                        continue;
                    }
                },
            };
            let Some(event) = next else { break };
            if self.held.first().is_some_and(|first| !Arc::ptr_eq(&first.to, &event.to)) {
                self.send_held().await;
            }
            let group = event.to.out_of_order as usize;
            self.held.push(event);
            if self.held.len() >= group {
                self.send_held().await;
            }
        }
        self.send_held().await;
        while self.retries.join_next().await.is_some() {}
    }

    /// Sends the group that was held back, last first. A group of one keeps the order.
    async fn send_held(&mut self) {
        for event in std::mem::take(&mut self.held).into_iter().rev() {
            for _ in 0..event.to.duplicates {
                self.send(&event).await;
            }
        }
        while self.retries.try_join_next().is_some() {}
    }

    /// One webhook; if it fails, the others do not wait for its further tries.
    async fn send(&mut self, event: &Event) {
        if self.sender.deliver(event, 1).await {
            return;
        }
        let places = Arc::clone(&self.retry_places);
        let Ok(place) = places.acquire_owned().await else { return };
        let (sender, event) = (self.sender.clone(), event.clone());
        self.retries.spawn(async move {
            sender.retry(&event).await;
            drop(place);
        });
    }
}

impl Sender {
    /// All tries after the first.
    async fn retry(&self, event: &Event) {
        let mut wait = event.to.retry_after;
        for number in 2..=event.to.tries_max {
            time::sleep(wait).await;
            wait = wait.saturating_mul(2).min(RETRY_PAUSE_MAX.max(event.to.retry_after));
            if self.deliver(event, number).await {
                return;
            }
        }
        tracing::warn!(
            event = event.id,
            tries = event.to.tries_max,
            "a webhook is left to the next start"
        );
        self.counters.given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// One try; whether it was taken.
    async fn deliver(&self, event: &Event, number: u32) -> bool {
        let outcome = time::timeout(ANSWER_WITHIN, self.post(event)).await;
        let detail = match outcome {
            Ok(Ok(status)) if status.is_success() => {
                self.writer.told(&event.payment);
                self.counters.delivered.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        tracing::debug!(event = event.id, number, detail, "a webhook was not taken");
        false
    }

    async fn post(
        &self,
        event: &Event,
    ) -> Result<axum::http::StatusCode, Box<dyn std::error::Error + Send + Sync>> {
        let timestamp = self.clock.now().as_seconds();
        let secret = event.to.secret.as_ref().ok_or("no secret to sign with")?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&event.to.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", secret.sign(&event.id, timestamp, &event.body))
            .body(Full::new(event.body.clone()))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        // The status is the answer; a body is only read so that the connection can be used again.
        if Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.is_err() {
            tracing::debug!(event = event.id, "the answer to a webhook was not read to its end");
        }
        Ok(status)
    }
}
