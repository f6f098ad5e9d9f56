//! The time: the host's clock, corrected by the `Date` header of the service's answers. Conditions of DynamoDB have
//! no clock, so each writer supplies the time.

use std::sync::Arc;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use firstwrite_core::Timestamp;
use firstwrite_core::corrected_clock::CorrectedClock;
use firstwrite_core::host_clock::Clock;

use crate::clock::host;

/// The store's clock; one that is given is a test's.
pub(super) fn corrected(given: Option<Clock>) -> Arc<CorrectedClock> {
    Arc::new(given.map_or_else(|| CorrectedClock::new(host()), CorrectedClock::exact))
}

/// Listens to the `Date` of every answer.
#[derive(Debug)]
pub(super) struct Listener(pub(super) Arc<CorrectedClock>);

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
        bag.interceptor_state().store_put(SendTime(self.0.host()));
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
        if let (Some(date), Some(SendTime(sent_at))) = (date, bag.load::<SendTime>())
            && let Some(offset_ms) = self.0.learn(date.secs(), *sent_at, self.0.host())
        {
            tracing::warn!(
                offset_ms,
                "the clock of this host is wrong by the service's; it is corrected for records"
            );
        }
        Ok(())
    }
}
