//! Figures that only the store has: read in the background, reported at a scrape.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite_core::outbox::DestinationView;
use firstwrite_core::{Query, StateFilter, Store, StoreError, Timestamp, Usage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Metrics;
use super::labels::{OTHER, Word};

/// As often as Prometheus usually asks.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Uncertain records wait for proof or for a person; above 10,000 the exact number does not matter.
const PAGES_MAX: usize = 10;
/// Destinations with a label of their own; they are named in settings and in code, never by clients.
const DESTINATIONS_MAX: usize = 100;

/// Latest figures, and when they were read.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) swept_at: Instant,
    pub(super) reaped_at: Instant,
    looked_at: Instant,
    looked: Looked,
    pub(super) breaker: Option<watch::Receiver<bool>>,
    /// Only where a cache stands in front of the store.
    pub(super) cache: Option<Counted>,
    /// Only where outcomes are sealed.
    pub(super) unopened: Option<Counted>,
    /// Set only if store usage is counted.
    pub(super) tenant_usage: Option<TenantUsageSeen>,
}

/// Tells counts that are kept elsewhere, as they stand at a scrape.
pub(super) struct Counted(pub(super) Box<dyn Fn() -> Counts + Send + Sync>);

/// Values of a label, and how often each was met.
pub type Counts = [(&'static str, u64); 3];

/// Store usage of tenants at the last count.
#[derive(Debug)]
pub(super) struct TenantUsageSeen {
    pub(super) counts: Vec<(Word, Usage)>,
    pub(super) at: Instant,
}

/// Result of one look at the store.
#[derive(Debug, Default)]
pub(super) struct Looked {
    uncertain_count: u64,
    uncertain_for: Duration,
    destinations: Vec<Destination>,
}

/// The messages to one destination.
#[derive(Debug)]
struct Destination {
    name: String,
    open_count: i64,
    unknown_count: i64,
    dead_count: i64,
    due_for: Duration,
}

/// Tells what was seen, as it stands at the moment.
#[derive(Debug)]
pub(super) struct Told(pub(super) Arc<Mutex<Seen>>);

/// Looks again and again.
pub(crate) async fn keep_looking(metrics: Arc<Metrics>, store: Arc<dyn Store>) {
    let mut turn = interval(LOOK_EVERY);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        if let Err(error) = metrics.look_once(&*store).await {
            tracing::warn!(%error, "the store could not be looked at; metrics show what it was");
        }
    }
}

/// Reads a bounded number of pages.
pub(super) async fn look(store: &dyn Store) -> Result<Looked, StoreError> {
    let mut looked = Looked::default();
    let state = Some(StateFilter::Uncertain);
    let mut query = Query { tenant: None, state, after: None, limit: Query::LIMIT_MAX };
    let mut now = None;
    for _ in 0..PAGES_MAX {
        let page = store.list(&query).await?;
        looked.uncertain_count += page.records.len() as u64;
        let ages = page.records.iter().map(|record| page.now.since(record.created_at));
        looked.uncertain_for = ages.fold(looked.uncertain_for, Duration::max);
        now = Some(page.now);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if let (Some(outbox), Some(now)) = (store.outbox(), now) {
        looked.destinations = bounded(outbox.destinations().await?, now);
    }
    Ok(looked)
}

/// The first of them by name, and the rest as one.
fn bounded(mut views: Vec<DestinationView>, now: Timestamp) -> Vec<Destination> {
    views.sort_by(|a, b| a.name.cmp(&b.name));
    let mut destinations: Vec<Destination> = Vec::new();
    for (index, view) in views.into_iter().enumerate() {
        let one = Destination {
            name: view.name,
            open_count: view.open_count,
            unknown_count: view.unknown_count,
            dead_count: view.dead_count,
            due_for: view.oldest_due_at.map_or(Duration::ZERO, |due_at| now.since(due_at)),
        };
        match destinations.get_mut(DESTINATIONS_MAX) {
            Some(rest) => rest.add(&one),
            None if index == DESTINATIONS_MAX => {
                destinations.push(Destination { name: OTHER.to_owned(), ..one });
            }
            None => destinations.push(one),
        }
    }
    destinations
}

impl Seen {
    /// Nothing yet; ages count from here on.
    pub(super) fn new(now: Instant) -> Self {
        let looked = Looked::default();
        Self {
            swept_at: now,
            reaped_at: now,
            looked_at: now,
            looked,
            breaker: None,
            cache: None,
            unopened: None,
            tenant_usage: None,
        }
    }

    pub(super) fn looked(&mut self, looked: Looked, at: Instant) {
        (self.looked, self.looked_at) = (looked, at);
    }
}

impl TenantUsageSeen {
    /// Nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { counts: Vec::new(), at: now }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Keys of a tenant that stand in the store, when they were last counted";
        let mut keys = gauge(encoder, "active_keys", help)?;
        for (tenant, usage) in &self.counts {
            keys.encode_family(&[("tenant", tenant.clone())])?.encode_gauge(&whole(usage.keys))?;
        }
        let help = "Bytes of a tenant's answers that are kept there";
        let mut bytes =
            encoder.encode_descriptor("stored", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        for (tenant, usage) in &self.counts {
            bytes
                .encode_family(&[("tenant", tenant.clone())])?
                .encode_gauge(&whole(usage.bytes))?;
        }
        let help = "Since what stands in the store was last counted, or counting began";
        age(encoder, "count_age", help, self.at.elapsed())
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Destination {
    fn add(&mut self, other: &Self) {
        self.open_count += other.open_count;
        self.unknown_count += other.unknown_count;
        self.dead_count += other.dead_count;
        self.due_for = self.due_for.max(other.due_for);
    }

    fn counts(&self) -> [(&'static str, i64); 3] {
        [("open", self.open_count), ("unknown", self.unknown_count), ("dead", self.dead_count)]
    }
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Looked { uncertain_count, uncertain_for, destinations } = &seen.looked;
        let help = "Records of which nobody knows how their attempt ended; counted up to 10000";
        gauge(&mut encoder, "uncertain_records", help)?.encode_gauge(uncertain_count)?;
        let help = "Since when the oldest uncertain record has stood, by its creation";
        age(&mut encoder, "uncertain_oldest_age", help, *uncertain_for)?;
        let help = "Messages by destination: open (waiting or being sent), unknown, dead";
        let mut messages = gauge(&mut encoder, "outbox_messages", help)?;
        for one in destinations {
            for (state, count) in one.counts() {
                let labels = [("destination", one.name.as_str()), ("state", state)];
                messages.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        let help = "How long the oldest message of a destination has been due";
        let mut due = in_seconds(&mut encoder, "outbox_oldest_due_age", help)?;
        for one in destinations {
            let labels = [("destination", one.name.as_str())];
            due.encode_family(&labels)?.encode_gauge(&one.due_for.as_secs_f64())?;
        }
        let help = "Since the last sweep of this process that succeeded, or since its start";
        age(&mut encoder, "sweep_age", help, seen.swept_at.elapsed())?;
        let help = "Since the last reaping of this process that succeeded, or since its start";
        age(&mut encoder, "reap_age", help, seen.reaped_at.elapsed())?;
        let help = "Since uncertain records and messages were last read from the store";
        age(&mut encoder, "look_age", help, seen.looked_at.elapsed())?;
        if let Some(tenant_usage) = &seen.tenant_usage {
            tenant_usage.encode(&mut encoder)?;
        }
        if let Some(breaker) = &seen.breaker {
            let help = "Whether the store is left alone because it is away";
            let is_open = i64::from(*breaker.borrow());
            gauge(&mut encoder, "store_breaker_open", help)?.encode_gauge(&is_open)?;
        }
        if let Some(counted) = &seen.cache {
            let help = "Questions to the cache in front of the store";
            counted.encode(&mut encoder, "cache_requests", help, "result")?;
        }
        if let Some(counted) = &seen.unopened {
            let help = "Times that an outcome in the store could not be opened";
            counted.encode(&mut encoder, "unopened_outcomes", help, "reason")?;
        }
        Ok(())
    }
}

impl Counted {
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &'static str,
        help: &str,
        label: &'static str,
    ) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, count) in self.0() {
            family
                .encode_family(&[(label, value)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.0()).finish()
    }
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

fn in_seconds<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)
}

fn age(
    encoder: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    age: Duration,
) -> Result<(), fmt::Error> {
    in_seconds(encoder, name, help)?.encode_gauge(&age.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: String) -> DestinationView {
        DestinationView {
            name,
            paused: None,
            open_until: None,
            open_cause: None,
            opening_count: 0,
            open_count: 1,
            unknown_count: 2,
            dead_count: 3,
            delivered_count: 4,
            oldest_due_at: Some(Timestamp::from_millis(1000)),
        }
    }

    #[test]
    fn destinations_are_bounded_and_none_is_lost() {
        let views = (0..DESTINATIONS_MAX + 7).map(|number| view(format!("d{number:03}"))).collect();
        let bounded = bounded(views, Timestamp::from_millis(3000));
        assert_eq!(bounded.len(), DESTINATIONS_MAX + 1);
        let rest = bounded.last().unwrap();
        let counts = (rest.open_count, rest.unknown_count, rest.dead_count);
        assert_eq!((rest.name.as_str(), counts), (OTHER, (7, 14, 21)));
        assert_eq!(rest.due_for, Duration::from_secs(2));
        assert_eq!(bounded[99].counts(), [("open", 1), ("unknown", 2), ("dead", 3)]);
    }
}
