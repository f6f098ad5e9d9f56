//! Counts calls to the provider by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{Method, Uri};
use serde::Serialize;

/// Calls that arrived, whatever became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// `POST /v1/payments`.
    pub create: u64,
    /// `GET /v1/payments/{id}`.
    pub fetch: u64,
    /// `GET /v1/payments?idempotency_key=…`.
    pub by_key: u64,
    /// `GET /v1/payments`, otherwise.
    pub list: u64,
    /// `GET /v1/payments.csv`.
    pub export: u64,
    /// Anything else below `/v1`.
    pub other: u64,
    /// Of all these: met an outage.
    pub met_outage: u64,
    /// Of all these: met the rate limit.
    pub rate_limited: u64,
}

/// The counters behind [`Requests`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    create: AtomicU64,
    fetch: AtomicU64,
    by_key: AtomicU64,
    list: AtomicU64,
    export: AtomicU64,
    other: AtomicU64,
    met_outage: AtomicU64,
    rate_limited: AtomicU64,
}

impl Counters {
    pub(crate) fn arrived(&self, method: &Method, uri: &Uri) {
        let is_by_key = || uri.query().is_some_and(|query| query.contains("idempotency_key="));
        let counter = match (method, uri.path()) {
            (&Method::POST, "/v1/payments") => &self.create,
            (&Method::GET, "/v1/payments") if is_by_key() => &self.by_key,
            (&Method::GET, "/v1/payments") => &self.list,
            (&Method::GET, "/v1/payments.csv") => &self.export,
            (&Method::GET, path) if path.starts_with("/v1/payments/") => &self.fetch,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn met_outage(&self) {
        self.met_outage.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rate_limited(&self) {
        self.rate_limited.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Requests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            create: read(&self.create),
            fetch: read(&self.fetch),
            by_key: read(&self.by_key),
            list: read(&self.list),
            export: read(&self.export),
            other: read(&self.other),
            met_outage: read(&self.met_outage),
            rate_limited: read(&self.rate_limited),
        }
    }
}
