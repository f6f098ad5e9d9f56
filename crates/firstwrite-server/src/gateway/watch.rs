//! Who watches a gateway: metrics on the operator's listener, traces to a collector.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::anyhow;
use firstwrite::Observer;
use firstwrite::worker::{Schedule, Worker};
use firstwrite_core::Store;
use firstwrite_gateway::{Holdings, Metrics, MetricsLimits, Operator, Tracer};
use firstwrite_store::CacheCounts;

use super::store::Opened;
use crate::command::GatewayFlags;
use crate::config::{self, GatewaySection, UsageError};
use crate::telemetry::Collector;

/// Who watches, for as long as the process lives. Without an operator's listener nothing is counted, and
/// without a collector nothing is traced.
pub(super) struct Watch {
    operator: Option<(SocketAddr, Arc<Metrics>)>,
    collector: Option<Collector>,
    tracer: Option<Arc<dyn Tracer>>,
    holdings: Arc<Holdings>,
}

/// Who hears of requests when nobody counts them.
struct Nobody;

impl Observer for Nobody {}

impl Watch {
    pub(super) fn resolve(
        flags: &GatewayFlags,
        section: &GatewaySection,
    ) -> Result<Self, UsageError> {
        let operator = config::given("--operator", flags.operator.as_deref(), section.operator)?;
        let collector = config::given("--otlp", flags.otlp.as_deref(), section.otlp.clone())?;
        let mut limits = MetricsLimits::default();
        if let Some(tenants_max) = section.metrics_tenants_max {
            limits.tenants_max = tenants_max;
        }
        let operator = operator.map(|listen| (listen.0, Arc::new(Metrics::new(limits))));
        let tracer = collector.as_ref().map(Collector::tracer);
        Ok(Self { operator, collector, tracer, holdings: Arc::default() })
    }

    /// Where traces go.
    pub(super) fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref()
    }

    pub(super) fn metrics(&self) -> Option<Arc<Metrics>> {
        self.operator.as_ref().map(|(_, metrics)| Arc::clone(metrics))
    }

    /// What tenants have in the store, over all reloads.
    pub(super) fn holdings(&self) -> Arc<Holdings> {
        Arc::clone(&self.holdings)
    }

    pub(super) fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        self.tracer.clone()
    }

    /// Who is told of requests, behind the limits.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        match self.metrics() {
            Some(metrics) => metrics,
            None => Arc::new(Nobody),
        }
    }

    /// The store, with its failures counted as requests meet them: those that the breaker refuses too.
    pub(super) fn store(&self, opened: &Opened) -> Arc<dyn Store> {
        let store = Arc::clone(&opened.store);
        let Some(metrics) = self.metrics() else { return store };
        metrics.watch_breaker(opened.is_away.clone());
        if let Some(cached) = opened.cached.clone() {
            metrics.watch_cache(move || {
                let CacheCounts { hits, misses, failures, .. } = cached.counts();
                [("hit", hits), ("miss", misses), ("failure", failures)]
            });
        }
        metrics.counting(store)
    }

    /// Starts to look after the store.
    pub(super) fn worker(&self, store: &Arc<dyn Store>, schedule: Schedule) -> Worker {
        let store = Arc::clone(store);
        match self.metrics() {
            Some(metrics) => Worker::observed(store, schedule, metrics),
            None => Worker::start(store, schedule),
        }
    }

    /// Opens the operator's listener. Last of all: whoever asks there whether we are ready means everything.
    pub(super) async fn open(&self, store: &Arc<dyn Store>) -> anyhow::Result<Option<Operator>> {
        let Some((address, metrics)) = &self.operator else { return Ok(None) };
        let started = Operator::start(*address, Arc::clone(store), Arc::clone(metrics)).await;
        let operator = started.map_err(|error| {
            anyhow!("cannot listen at {address}: {error}; choose another address with --operator")
        })?;
        Ok(Some(operator))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("operator", &self.operator)
            .field("collector", &self.collector)
            .finish_non_exhaustive()
    }
}
