//! Prometheus metrics of the gateway.
//!
//! Label values are bounded whatever clients send: operations are those that are named, tenants get a label of
//! their own up to a limit, and neither keys nor paths are ever labels. Figures from the store are read every
//! few seconds in the background ([`Metrics::look_once`]), never during a scrape.

mod labels;
mod look;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite::worker::TurnObserver;
use firstwrite::{Observer, Operation, RequestFinished, RequestResult, Tenant};
use firstwrite_core::protocol::Swept;
use firstwrite_core::{RejectionKind, Store, StoreError, StoreErrorKind, Usage};
use http::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::upstream::CallError;
use labels::{Known, RequestLabels, Slots, Word};
pub use look::Counts;
pub(crate) use look::keep_looking;
use look::{Counted, Seen, TenantUsageSeen};
use store::CountingStore;

/// Everything that is counted. One for the life of a process: reloads go on counting in it.
pub struct Metrics {
    registry: Registry,
    limits: MetricsLimits,
    operations: Known,
    tenants: Slots,
    requests: Family<RequestLabels, Counter>,
    reservation: Histogram,
    replay: Histogram,
    in_flight: [Gauge; 2],
    passed: [Counter; 5],
    refused_heads: Counter,
    not_sent: Counter,
    lost: Counter,
    store_errors: Family<Labels<2>, Counter>,
    swept: [Counter; 3],
    reaped: Counter,
    seen: Arc<Mutex<Seen>>,
}

/// Labels whose words are all ours.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Bounds on the number of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsLimits {
    /// Tenants with a label of their own; the others share `other`.
    pub tenants_max: usize,
}

/// Kind of operation that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Protected,
    Passed,
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Gauge);

/// Each is a line for every operation and every way to end: a few hundred lines a tenant at most.
const TENANTS_MAX: usize = 100;
/// From a look-up in memory to a store that is nearly given up.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Metrics {
    /// Nothing is counted yet.
    pub fn new(limits: MetricsLimits) -> Self {
        let mut registry = Registry::with_prefix("firstwrite");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What is running", build);
        let seen = Arc::new(Mutex::new(Seen::new(Instant::now())));
        registry.register_collector(Box::new(look::Told(Arc::clone(&seen))));
        let counted = &mut registry;
        let [not_sent, lost] = each(
            counted,
            "upstream_errors",
            "Calls to upstreams without an answer: not a byte was sent, or nobody knows",
            ("error", ["not_sent", "lost"]),
        );
        Self {
            operations: Known::default(),
            limits,
            tenants: Slots::new(limits.tenants_max),
            requests: one(
                counted,
                "requests",
                "Requests to protected operations, by how they ended",
            ),
            reservation: seconds(
                counted,
                "reservation_duration",
                "How long a key took to be reserved, or to be found not free",
            ),
            replay: seconds(
                counted,
                "replay_duration",
                "How long a replay took, from the request's head to its answer's",
            ),
            in_flight: each(
                counted,
                "requests_in_flight",
                "Requests whose answer has not begun",
                ("kind", ["protected", "passed"]),
            ),
            passed: each(
                counted,
                "passed_requests",
                "Requests that passed through without a key, by the status of their answer",
                ("status", ["1xx", "2xx", "3xx", "4xx", "5xx"]),
            ),
            refused_heads: one(counted, "refused_heads", "Requests that made no sense as HTTP"),
            not_sent,
            lost,
            store_errors: one(counted, "store_errors", "Steps of the store that failed"),
            swept: each(
                counted,
                "swept_records",
                "Records whose lease had run out, by what the sweep did",
                ("result", ["freed", "uncertain", "moved"]),
            ),
            reaped: one(counted, "reaped_records", "Records deleted past their retention"),
            seen,
            registry,
        }
    }

    /// Everything, in the text form of `OpenMetrics`.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// The same store, with its failures counted.
    pub fn counting(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(CountingStore::new(store, Arc::clone(self)))
    }

    /// Shows whether the store is left alone, as its breaker says it.
    pub fn watch_breaker(&self, is_open: watch::Receiver<bool>) {
        self.seen().breaker = Some(is_open);
    }

    /// Shows how often a cache in front of the store was of use: results, and how often each was met.
    pub fn watch_cache(&self, counts: impl Fn() -> Counts + Send + Sync + 'static) {
        self.seen().cache = Some(Counted(Box::new(counts)));
    }

    /// Shows how often a sealed store could not open an outcome: reasons, and how often each was met.
    pub fn watch_unopened(&self, counts: impl Fn() -> Counts + Send + Sync + 'static) {
        self.seen().unopened = Some(Counted(Box::new(counts)));
    }

    /// Reads what only the store knows: uncertain records and the outbox. A failure keeps what was read
    /// before, and its age tells.
    pub async fn look_once(&self, store: &dyn Store) -> Result<(), StoreError> {
        let looked = look::look(store).await?;
        self.seen().looked(looked, Instant::now());
        Ok(())
    }

    /// Records are counted from here on.
    pub(crate) fn counting_began(&self) {
        self.seen().tenant_usage.get_or_insert_with(|| TenantUsageSeen::new(Instant::now()));
    }

    /// Records the store usage of all tenants after a complete count.
    pub(crate) fn counted(&self, counts: &HashMap<Tenant, Usage>) {
        let mut labels: HashMap<Word, Usage> = HashMap::new();
        for (tenant, usage) in counts {
            labels.entry(self.tenants.label(tenant.as_str(), false)).or_default().add(*usage);
        }
        let counts = labels.into_iter().collect();
        self.seen().tenant_usage = Some(TenantUsageSeen { counts, at: Instant::now() });
    }

    /// Operations that have a name; all others are the client's choice of words.
    pub(crate) fn know<'a>(&self, names: impl Iterator<Item = &'a str>) {
        self.operations.set(names);
    }

    pub(crate) fn under_way(&self, kind: Kind) -> UnderWay {
        let gauge = self.in_flight[kind as usize].clone();
        gauge.inc();
        UnderWay(gauge)
    }

    /// A request passed through, and was answered.
    pub(crate) fn passed(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.passed.get(class) {
            counter.inc();
        }
    }

    pub(crate) fn refused_head(&self) {
        self.refused_heads.inc();
    }

    /// A request was refused before the layer could tell.
    pub(crate) fn refused(&self, operation: &Operation, kind: RejectionKind) {
        self.count(RequestResult::Refused(kind), operation, Word::Fixed(labels::UNKNOWN));
    }

    pub(crate) fn call_failed(&self, error: &CallError) {
        match error {
            CallError::NoRoom | CallError::LeaseEnded | CallError::NotSent(_) => {
                self.not_sent.inc()
            }
            CallError::Lost(_) => self.lost.inc(),
        };
    }

    fn count(&self, how: RequestResult, operation: &Operation, tenant: Word) {
        let operation = self.operations.label(&operation.name);
        self.requests.get_or_create(&RequestLabels { how: how.as_str(), operation, tenant }).inc();
    }

    fn store_failed(&self, step: &'static str, error: &StoreError) {
        let kind = match error.kind() {
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::Full => "full",
            StoreErrorKind::Corrupt => "corrupt",
            StoreErrorKind::Unsupported => "unsupported",
            StoreErrorKind::Panicked => "panicked",
            StoreErrorKind::HistoryLost => "history_lost",
            _ => "other",
        };
        self.store_errors.get_or_create(&[("step", step), ("kind", kind)]).inc();
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Metrics {
    fn reserved(&self, took: Duration) {
        self.reservation.observe(took.as_secs_f64());
    }

    fn answered(&self, answered: &RequestFinished<'_>) {
        // A caller with a successful answer passed verification. Other callers, who may make names up, get no
        // label of their own.
        let is_good = answered.status.is_some_and(|status| status.as_u16() < 400);
        let tenant = match answered.tenant {
            Some(tenant) => self.tenants.label(tenant.as_str(), is_good),
            None => Word::Fixed(labels::UNKNOWN),
        };
        self.count(answered.how, answered.operation, tenant);
        if answered.how == RequestResult::Replayed {
            self.replay.observe(answered.took.as_secs_f64());
        }
    }
}

impl TurnObserver for Metrics {
    fn swept(&self, swept: &Swept) {
        let Swept { freed, uncertain, moved } = *swept;
        for (counter, count) in self.swept.iter().zip([freed, uncertain, moved]) {
            counter.inc_by(count as u64);
        }
        self.seen().swept_at = Instant::now();
    }

    fn reaped(&self, reaped: usize) {
        self.reaped.inc_by(reaped as u64);
        self.seen().reaped_at = Instant::now();
    }
}

fn one<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn seconds(registry: &mut Registry, name: &'static str, help: &'static str) -> Histogram {
    let histogram = Histogram::new(SECONDS);
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

/// One metric for each of a few words. They are there from the start: of a counter that appears with its
/// first increase, that increase is not seen.
fn each<M, const N: usize>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    (label, words): (&'static str, [&'static str; N]),
) -> [M; N]
where
    M: Metric + TypedMetric + Clone + Default,
{
    let family: Family<Labels<1>, M> = one(registry, name, help);
    words.map(|word| family.get_or_create_owned(&[(label, word)]))
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for MetricsLimits {
    fn default() -> Self {
        Self { tenants_max: TENANTS_MAX }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("limits", &self.limits).finish_non_exhaustive()
    }
}
