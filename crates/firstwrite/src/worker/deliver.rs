//! Deliver: claim messages that are due, hand each to its destination, and settle how that ended.
//!
//! One task claims and settles; each delivery runs in a task of its own. Whatever ends while a commit
//! is under way is written with the next one, and a claim takes as much as there are free slots, so
//! batches form by themselves and an idle worker adds no delay. No transaction is open while a
//! destination is spoken to.

mod delivery_task;
mod destination_state;
mod dispatcher;
mod lives;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{Carrier, Terms};
use firstwrite_core::{Message, Store, StoreError};
use tokio::sync::watch;

use dispatcher::Dispatcher;

/// A destination: its name, what it declares, and who carries messages there.
#[derive(Clone, Debug)]
pub struct Destination {
    name: String,
    terms: Terms,
    carrier: Arc<dyn Carrier>,
}

/// Delivers the messages of a store to the destinations it knows.
#[derive(Clone)]
pub struct Deliver {
    store: Arc<dyn Store>,
    destinations: Arc<[Destination]>,
    slot_count: usize,
    claim_max: usize,
}

/// Destinations that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliverError {
    /// The store keeps no messages.
    NoOutbox,
    /// Two destinations have this name.
    TwoOfOneName(String),
    /// No message can go to a destination of this name.
    NotAName(String),
    /// The destination of this name declares terms that contradict each other. Holds the reason.
    Contradiction(String, &'static str),
}

/// Results of the deliveries of a turn, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveredCounts {
    /// Messages that arrived.
    pub delivered: usize,
    /// Messages that are due again later.
    pub waiting: usize,
    /// Messages that are held, because it is unknown whether they arrived.
    pub unknown: usize,
    /// Messages that never will arrive, and whose clients were told so.
    pub refused: usize,
    /// Messages that became dead letters.
    pub dead: usize,
    /// Claims that another worker or an operator had taken over before they were settled.
    pub lost: usize,
}

/// Interval between searches for messages when no notification arrives.
pub const DELIVER_EVERY: Duration = Duration::from_secs(1);
/// Deliveries of one worker at a time: enough to keep dozens of slow destinations busy, few enough that
/// their payloads fit into memory (256 MiB at the very most).
pub const SLOT_COUNT: usize = 256;

impl Destination {
    /// A destination by the name that messages give.
    pub fn new(name: impl Into<String>, terms: Terms, carrier: Arc<dyn Carrier>) -> Self {
        Self { name: name.into(), terms, carrier }
    }

    /// The name that messages give.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the terms that the destination declares.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }
}

impl Deliver {
    /// Delivers what `store` holds for `destinations`. Messages to others wait.
    ///
    /// The policies of the layers that write to `store` are not known here: that their `retention` is at least
    /// [`Terms::dedupe_for`] is for the caller to see to.
    pub fn new(
        store: Arc<dyn Store>,
        destinations: Vec<Destination>,
    ) -> Result<Self, DeliverError> {
        if store.outbox().is_none() {
            return Err(DeliverError::NoOutbox);
        }
        let mut names: Vec<&str> = destinations.iter().map(Destination::name).collect();
        if let Some(name) = names.iter().find(|name| !Message::is_name(name)) {
            return Err(DeliverError::NotAName((*name).to_owned()));
        }
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(DeliverError::TwoOfOneName(twice[0].to_owned()));
        }
        for Destination { name, terms, .. } in &destinations {
            let contradiction = |why| DeliverError::Contradiction(name.clone(), why);
            terms.check().map_err(contradiction)?;
        }
        Ok(Self {
            store,
            destinations: destinations.into(),
            slot_count: SLOT_COUNT,
            claim_max: usize::MAX,
        })
    }

    /// Sets how many deliveries may be under way at a time.
    #[must_use]
    pub fn slot_count(mut self, slot_count: usize) -> Self {
        self.slot_count = slot_count.max(1);
        self
    }

    /// Sets how many messages one claim takes for a destination; as many as its limit allows, unless set.
    #[must_use]
    pub fn claim_max(mut self, claim_max: usize) -> Self {
        self.claim_max = claim_max.max(1);
        self
    }

    /// The destinations it knows.
    pub fn destinations(&self) -> &[Destination] {
        &self.destinations
    }

    /// Claims once, as much as each destination's limit allows, and returns when everything claimed is
    /// settled.
    pub async fn run_once(&self) -> Result<DeliveredCounts, StoreError> {
        Dispatcher::new(self).once().await
    }

    /// Claims until nothing is due, and returns when everything is settled. What waits for its pause
    /// is left waiting.
    pub async fn run_until_idle(&self) -> Result<DeliveredCounts, StoreError> {
        let mut dispatcher = Dispatcher::new(self);
        let mut sum = DeliveredCounts::default();
        loop {
            let counts = dispatcher.once().await?;
            if counts == DeliveredCounts::default() {
                return Ok(sum);
            }
            sum = sum.plus(counts);
        }
    }

    /// Delivers until all stop senders are dropped; then finishes the deliveries under way and claims no
    /// more.
    pub(super) async fn run(self, stopped: watch::Receiver<()>) {
        if !self.destinations.is_empty() {
            Dispatcher::new(&self).until(stopped).await;
        }
    }
}

impl DeliveredCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            waiting: self.waiting + other.waiting,
            unknown: self.unknown + other.unknown,
            refused: self.refused + other.refused,
            dead: self.dead + other.dead,
            lost: self.lost + other.lost,
        }
    }
}

impl fmt::Debug for Deliver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.destinations.iter().map(Destination::name).collect();
        f.debug_struct("Deliver").field("destinations", &names).finish_non_exhaustive()
    }
}

impl fmt::Display for DeliverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOutbox => f.write_str("the store keeps no messages"),
            Self::TwoOfOneName(name) => write!(f, "two destinations are called `{name}`"),
            Self::NotAName(name) => write!(
                f,
                "`{}` cannot be a destination's name: 1 to 64 visible characters without a colon",
                name.escape_debug()
            ),
            Self::Contradiction(name, why) => write!(f, "destination {name}: {why}"),
        }
    }
}

impl std::error::Error for DeliverError {}

#[cfg(test)]
mod tests;
