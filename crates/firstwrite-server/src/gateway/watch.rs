//! Observability of a gateway: metrics on the operator's listener, traces to a collector.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::anyhow;
use firstwrite::Observer;
use firstwrite::worker::{Schedule, Worker};
use firstwrite_core::Store;
use firstwrite_gateway::{Claim, Metrics, MetricsLimits, Operator, TenantUsage, Tracer};
use firstwrite_wrappers::{CacheCounts, UnopenedCounts};

use super::store::Opened;
use crate::command::GatewayFlags;
use crate::config::{self, GatewaySection, UsageError};
use crate::telemetry::Collector;

/// Metrics and traces of a gateway, for as long as the process lives. Without an operator's listener nothing is
/// counted, and without a collector nothing is traced.
pub(super) struct Watch {
    operator: Option<(SocketAddr, Arc<Metrics>)>,
    collector: Option<Collector>,
    tracer: Option<Arc<dyn Tracer>>,
    tenant_usage: Arc<TenantUsage>,
}

/// Observer that ignores requests, used when metrics are off.
struct NoObserver;

impl Observer for NoObserver {}

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
        Ok(Self { operator, collector, tracer, tenant_usage: Arc::default() })
    }

    /// Refuses an operator's address that clients connect to: only one of two listeners could have it.
    pub(super) fn check_apart(&self, listen: SocketAddr) -> Result<(), UsageError> {
        match &self.operator {
            Some((operator, _)) if is_shared(*operator, listen) => Err(UsageError::new(format!(
                "gateway.operator: {operator} is taken by the clients' listener, {listen}; choose another port"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the collector that receives the traces.
    pub(super) fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref()
    }

    pub(super) fn metrics(&self) -> Option<Arc<Metrics>> {
        self.operator.as_ref().map(|(_, metrics)| Arc::clone(metrics))
    }

    /// Returns the tenants' usage of the store, which is kept across reloads.
    pub(super) fn tenant_usage(&self) -> Arc<TenantUsage> {
        Arc::clone(&self.tenant_usage)
    }

    pub(super) fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        self.tracer.clone()
    }

    /// Returns the observer of requests that have passed the limits.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        match self.metrics() {
            Some(metrics) => metrics,
            None => Arc::new(NoObserver),
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
        if let Some(sealed) = opened.sealed.clone() {
            metrics.watch_unopened(move || {
                let UnopenedCounts { altered, no_key, not_sealed, .. } = sealed.unopened();
                [("altered", altered), ("no_key", no_key), ("not_sealed", not_sealed)]
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

    /// Takes the operator's address.
    pub(super) fn claim(&self) -> anyhow::Result<Option<Claim>> {
        let Some((address, _)) = &self.operator else { return Ok(None) };
        Claim::of(*address).map(Some).map_err(|error| elsewhere(*address, &error))
    }

    /// Opens the operator's listener. This comes last, because its readiness probe stands for the whole gateway.
    pub(super) async fn open(
        &self,
        claim: Option<Claim>,
        store: &Arc<dyn Store>,
    ) -> anyhow::Result<Option<Operator>> {
        let (Some(claim), Some((address, metrics))) = (claim, &self.operator) else {
            return Ok(None);
        };
        let started = Operator::start_at(claim, Arc::clone(store), Arc::clone(metrics)).await;
        started.map(Some).map_err(|error| elsewhere(*address, &error))
    }
}

fn is_shared(one: SocketAddr, other: SocketAddr) -> bool {
    // The unspecified address of IPv6 takes those of IPv4 too.
    let includes = |all: IpAddr, ip: IpAddr| {
        all == ip || (all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4()))
    };
    let is_same_port = one.port() == other.port() && one.port() != 0;
    is_same_port && (includes(one.ip(), other.ip()) || includes(other.ip(), one.ip()))
}

fn elsewhere(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    anyhow!("cannot listen at {address}: {error}; choose another address with --operator")
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("operator", &self.operator)
            .field("collector", &self.collector)
            .finish_non_exhaustive()
    }
}
