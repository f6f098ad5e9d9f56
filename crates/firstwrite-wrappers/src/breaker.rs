//! A circuit breaker around a store: it stops calling a store that is unavailable.
//!
//! 1. A call that gets no answer in time is an error: definite for a look-up, indeterminate for a write,
//!    which may have been applied.
//! 2. A number of consecutive calls that fail because the store is unavailable opens the breaker. For a short
//!    while, every call is then refused at once, as definitely not done.
//! 3. After that, one call probes the store. If the store answers, the breaker closes.
//!
//! Only an error that means that the store is unavailable counts ([`StoreErrorKind::Unavailable`], and no
//! answer in time). A conflict is no error, and a store that refuses, is full, or has lost history has
//! answered.
//!
//! If callers are sent elsewhere while the breaker is open (by a balancer that follows readiness), none of
//! them would probe the store again: [`BreakerStore::keep_trying`] does.
//!
//! Messages and findings are not guarded: workers that deliver and reconcile wait and retry by themselves,
//! and no caller waits for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{
    BoxFuture, Capabilities, Certainty, Store, StoreError, StoreErrorKind, delegate_store,
    store_methods,
};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use crate::circuit::Circuit;

/// A store in front of another, which it stops calling while that one is unavailable.
pub struct BreakerStore {
    inner: Arc<dyn Store>,
    options: BreakerOptions,
    circuit: Circuit,
}

/// Settings for opening the breaker, and for how long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BreakerOptions {
    /// Number of consecutive calls that find the store unavailable before the breaker opens. One lost
    /// connection fails a handful of calls at once, and is no reason.
    pub failures_max: u32,
    /// Time for which the breaker stays open before one call probes the store. Short: callers refused
    /// meanwhile could have been served.
    pub open_for: Duration,
    /// Time limit of a call on one record. Longer than the stores' own limits (PostgreSQL: 10 s for a
    /// statement), whose errors say more; this one is for a store that does not answer at all.
    pub call_timeout: Duration,
    /// Time limit of a call that examines many records: listings, sweeps, reaping.
    pub upkeep_timeout: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures_max: 8,
            open_for: Duration::from_secs(1),
            call_timeout: Duration::from_secs(15),
            upkeep_timeout: Duration::from_mins(2),
        }
    }
}

impl BreakerStore {
    /// In front of `inner`.
    pub fn new(inner: Arc<dyn Store>, options: BreakerOptions) -> Self {
        let circuit = Circuit::new(options.failures_max, options.open_for);
        Self { inner, options, circuit }
    }

    /// Returns true if the store is unavailable, as far as is known: readiness is the opposite of this.
    pub fn is_open(&self) -> bool {
        self.circuit.is_open()
    }

    /// Tells when the breaker opens (`true`) and closes.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.circuit.watch()
    }

    /// Probes the store whenever the breaker is open and a probe is due, until the future is dropped.
    pub async fn keep_trying(&self) {
        let mut seen = self.watch();
        while seen.wait_for(|is_open| *is_open).await.is_ok() {
            match self.circuit.next_trial() {
                Some(at) => {
                    sleep_until(at).await;
                    self.try_once().await;
                }
                // Another call is probing. If it is abandoned, ours is the next.
                None => sleep_until(tokio::time::Instant::now() + self.options.open_for).await,
            }
        }
    }

    /// Asks the store for its time if the breaker is open and a probe is due. Returns true if it is still open.
    pub async fn try_once(&self) -> bool {
        if self.is_open()
            && let Err(error) = self.now().await
        {
            tracing::debug!(%error, "the store is still away");
        }
        self.is_open()
    }

    async fn guarded<'a, T>(
        &self,
        doing: &'static str,
        limit: Duration,
        lost: Certainty,
        call: impl FnOnce() -> Call<'a, T>,
    ) -> Result<T, StoreError> {
        let Some(pass) = self.circuit.enter() else {
            let error = StoreError::definite(StoreErrorKind::Unavailable, doing);
            return Err(error.caused_by("it is away and is left alone for a moment"));
        };
        let was_open = self.is_open();
        let ended = match timeout(limit, call()).await {
            Ok(ended) => ended,
            Err(elapsed) => Err(no_answer(doing, lost).caused_by(elapsed)),
        };
        match &ended {
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {
                pass.failed();
                if !was_open && self.is_open() {
                    tracing::error!(%error, "the store is away: it is left alone for a moment");
                }
            }
            Ok(_) | Err(_) => {
                pass.succeeded();
                if was_open && !self.is_open() {
                    tracing::info!("the store is back");
                }
            }
        }
        ended
    }

    async fn look<'a, T>(
        &self,
        doing: &'static str,
        call: impl FnOnce() -> Call<'a, T>,
    ) -> Result<T, StoreError> {
        self.guarded(doing, self.options.call_timeout, Certainty::Definite, call).await
    }

    async fn write<'a, T>(
        &self,
        doing: &'static str,
        call: impl FnOnce() -> Call<'a, T>,
    ) -> Result<T, StoreError> {
        self.guarded(doing, self.options.call_timeout, Certainty::Indeterminate, call).await
    }
}

/// A call to the store, which is not made before it may be.
type Call<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

fn no_answer(doing: &'static str, lost: Certainty) -> StoreError {
    match lost {
        Certainty::Definite => StoreError::definite(StoreErrorKind::Unavailable, doing),
        Certainty::Indeterminate => StoreError::indeterminate(StoreErrorKind::Unavailable, doing),
    }
}

impl Store for BreakerStore {
    delegate_store!(inner: outbox, documents);

    store_methods!(self;
        capabilities() => {
            let inner = self.inner.capabilities();
            // A write that is not waited for any more may still be carried out within the store's own limit.
            let answers_within = inner.answers_within.max(Some(self.options.call_timeout));
            Capabilities { answers_within, ..inner }
        },
        insert(draft) => self.write("inserting a record", || self.inner.insert(draft)),
        swap(id, guard, change, audit) => {
            self.write("changing a record", move || self.inner.swap(id, guard, change, audit))
        },
        get(id) => self.look("looking a record up", move || self.inner.get(id)),
        list(query) => {
            let limit = self.options.upkeep_timeout;
            let call = move || self.inner.list(query);
            self.guarded("listing records", limit, Certainty::Definite, call)
        },
        usage(after, limit) => {
            let call = move || self.inner.usage(after, limit);
            let limit = self.options.upkeep_timeout;
            self.guarded("counting records", limit, Certainty::Definite, call)
        },
        reap(limit) => {
            let call = move || self.inner.reap(limit);
            let limit = self.options.upkeep_timeout;
            self.guarded("reaping records", limit, Certainty::Indeterminate, call)
        },
        audits(id) => self.look("reading audit entries", move || self.inner.audits(id)),
        now() => self.look("reading the store's clock", || self.inner.now()),
        check_history(id) => self.look("checking the history", move || self.inner.check_history(id)),
    );
}

impl fmt::Debug for BreakerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerStore")
            .field("inner", &self.inner)
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
