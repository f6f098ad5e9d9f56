//! The time: the host's clock, corrected by the `Date` header of the service's answers.
//!
//! Conditions of DynamoDB have no clock, so each writer supplies the time. A host whose clock agrees with
//! the service's to the second keeps its own; otherwise the clock is corrected by as little as makes it
//! agree. So two hosts differ by about a second and the time an answer takes, however wrong their own
//! clocks are.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use firstwrite_core::Timestamp;

use crate::Clock;
use crate::clock::host;

/// The store's clock: the host's, with a correction.
pub(super) struct StoreClock {
    source: Clock,
    /// `None` if the source is a test's, which is right by definition.
    bounds: Option<Mutex<Option<Bounds>>>,
    offset: AtomicI64,
}

/// Bounds of the service's lead over this host, in milliseconds, as of `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    low: i64,
    high: i64,
    at: i64,
}

/// A clock that is not watched runs wrong by less than this part of the time.
const DRIFT_PART: i64 = 1000;

/// Offset, in milliseconds, from which a correction is logged.
const NOTED_FROM: i64 = 1000;

impl StoreClock {
    pub(super) fn new(given: Option<Clock>) -> Arc<Self> {
        let bounds = given.is_none().then(Mutex::default);
        Arc::new(Self { source: given.unwrap_or_else(host), bounds, offset: AtomicI64::new(0) })
    }

    /// A correction may take it back: the alternative, standing still until the truth has caught up with a
    /// clock that was ahead, would hold every lease.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis((self.source)().as_millis().saturating_add(self.offset()))
    }

    /// Returns the milliseconds by which this host's own clock is corrected.
    pub(super) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Learns from `date`, which the service wrote, in whole seconds, between two readings of the host's
    /// clock.
    fn learn(&self, date: i64, asked: Timestamp, answered: Timestamp) {
        let Some(bounds) = &self.bounds else { return };
        let newer = Bounds::new(date.saturating_mul(1000), asked.as_millis(), answered.as_millis());
        let mut bounds = bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let known = bounds.map_or(newer, |before| before.and(newer));
        *bounds = Some(known);
        let before = self.offset.swap(known.offset(), Ordering::Relaxed);
        if known.offset().abs() >= NOTED_FROM && before.abs() < NOTED_FROM {
            tracing::warn!(
                offset_ms = known.offset(),
                "the clock of this host is wrong by the service's; it is corrected for records"
            );
        }
    }
}

impl Bounds {
    fn new(date: i64, asked: i64, answered: i64) -> Self {
        // Written within the second that it names, after it was asked for and before it was read.
        let (low, high) = (date.saturating_sub(answered), date.saturating_add(999 - asked));
        Self { low, high: high.max(low), at: answered }
    }

    /// Intersects both bounds. If they contradict each other, one of the clocks was set, and the newer one
    /// counts.
    fn and(self, newer: Self) -> Self {
        let drift = newer.at.saturating_sub(self.at).max(0) / DRIFT_PART;
        let low = newer.low.max(self.low.saturating_sub(drift));
        let high = newer.high.min(self.high.saturating_add(drift));
        if low > high { newer } else { Self { low, high, at: newer.at } }
    }

    /// The smallest correction that agrees with the service.
    fn offset(self) -> i64 {
        0.clamp(self.low, self.high)
    }
}

/// Listens to the `Date` of every answer.
#[derive(Debug)]
pub(super) struct Listener(pub(super) Arc<StoreClock>);

#[derive(Debug)]
struct SendTime(Timestamp);

impl Storable for SendTime {
    type Storer = StoreReplace<Self>;
}

impl Intercept for Listener {
    fn name(&self) -> &'static str {
        "FirstwriteClock"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(SendTime((self.0.source)()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        if let (Some(date), Some(SendTime(sent_at))) = (date, bag.load::<SendTime>()) {
            self.0.learn(date.secs(), *sent_at, (self.0.source)());
        }
        Ok(())
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreClock({:+} ms)", self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(reading: &Arc<AtomicI64>) -> StoreClock {
        let reading = Arc::clone(reading);
        let source: Clock =
            Arc::new(move || Timestamp::from_millis(reading.load(Ordering::Relaxed)));
        StoreClock { source, bounds: Some(Mutex::default()), offset: AtomicI64::new(0) }
    }

    fn hear(clock: &StoreClock, date: i64, asked: i64, answered: i64) {
        clock.learn(date, Timestamp::from_millis(asked), Timestamp::from_millis(answered));
    }

    #[test]
    fn a_host_that_agrees_keeps_its_own_clock() {
        let reading = Arc::new(AtomicI64::new(100_400));
        let clock = clock(&reading);
        hear(&clock, 100, 100_390, 100_400);
        assert_eq!(clock.now(), Timestamp::from_millis(100_400));
    }

    #[test]
    fn a_host_that_is_wrong_is_moved_to_within_a_second() {
        for (wrong_by, date) in [(-60_000, 100), (60_000, 100), (-3_600_000, 4000)] {
            let truth = date * 1000 + 500;
            let reading = Arc::new(AtomicI64::new(truth + wrong_by));
            let clock = clock(&reading);
            hear(&clock, date, truth + wrong_by - 10, truth + wrong_by);
            let off = clock.now().as_millis() - truth;
            assert!(off.abs() <= 1010, "{off} ms off with a clock wrong by {wrong_by}");
        }
    }

    #[test]
    fn answers_around_the_turn_of_a_second_narrow_it_down() {
        // The service is 5000 ms ahead; its second turns between the two answers.
        let clock = clock(&Arc::new(AtomicI64::new(0)));
        hear(&clock, 104, 99_980, 99_990);
        hear(&clock, 105, 100_000, 100_010);
        let known = clock.bounds.as_ref().unwrap().lock().unwrap().unwrap();
        assert!(known.low >= 4_990 && known.high <= 5_020, "{known:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_believed_no_longer_than_its_contradiction() {
        let clock = clock(&Arc::new(AtomicI64::new(0)));
        hear(&clock, 100, 100_000, 100_010);
        hear(&clock, 101, 500_000, 500_010);
        assert!((-399_010..=-398_000).contains(&clock.offset()), "{}", clock.offset());
    }
}
