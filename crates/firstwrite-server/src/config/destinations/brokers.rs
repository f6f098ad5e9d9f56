//! Destinations on message brokers.
//!
//! A `timeout` there is for reaching the broker, and again for its answer; a delivery may take both.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::carrier::broker::{SettingsError, TIMEOUT_DEFAULT};
use firstwrite::carrier::nats::{NatsCarrier, NatsSettings};
use firstwrite::carrier::rabbitmq::{RabbitmqCarrier, RabbitmqSettings};
use firstwrite::carrier::redis_streams::{RedisStreamsCarrier, RedisStreamsSettings};
use firstwrite_core::outbox::{Carrier, Terms};
use serde::Deserialize;

use super::super::given::Given;
use super::named;
use super::terms::TermsSection;

#[cfg(feature = "kafka")]
pub(super) use kafka::KafkaSection;

#[cfg(feature = "kafka")]
mod kafka;

/// The settings of `kind = "nats"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NatsSection {
    /// Address of a server, or of several separated by commas.
    url: Given,
    /// Subject that messages are published to.
    subject: String,
    /// Stream that must store the message. Without it, any stream that listens on the subject.
    stream: Option<String>,
    /// Contents of a `.creds` file.
    credentials: Option<Given>,
}

/// The settings of `kind = "rabbitmq"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RabbitmqSection {
    /// Address of the server and its virtual host.
    url: Given,
    /// Queue that messages are published to, instead of an exchange.
    queue: Option<String>,
    /// Exchange that messages are published to, instead of a queue.
    exchange: Option<String>,
    /// Routing key, with an exchange. Default: none.
    routing_key: Option<String>,
    /// Declares that a message gets into one queue at most. Default: true with a queue, false with an
    /// exchange.
    reaches_one_queue: Option<bool>,
    /// Messages under way at the same time, each on a channel. Default: `16`.
    channel_max: Option<u16>,
}

/// The settings of `kind = "redis"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedisSection {
    /// Address of the server and its database.
    url: Given,
    /// Key of the stream.
    stream: String,
    /// Makes a stream that is not there. Default: `false`.
    creates_stream: Option<bool>,
    /// Entries that the stream keeps, about; older ones are dropped, read or not. Without it, all.
    length_max: Option<u64>,
}

impl NatsSection {
    pub(super) fn build(
        &self,
        section: &TermsSection,
        terms: &mut Terms,
    ) -> Result<Arc<dyn Carrier>, String> {
        let url = named("url", self.url.read())?;
        let mut settings = NatsSettings::new(url, &self.subject);
        settings.stream.clone_from(&self.stream);
        if let Some(credentials) = &self.credentials {
            settings.credentials = Some(named("credentials", credentials.read())?);
        }
        settings.timeout = timeout(section, terms);
        carrier(NatsCarrier::new(settings))
    }
}

impl RabbitmqSection {
    pub(super) fn build(
        &self,
        section: &TermsSection,
        terms: &mut Terms,
    ) -> Result<Arc<dyn Carrier>, String> {
        let url = named("url", self.url.read())?;
        let mut settings = match (&self.queue, &self.exchange, &self.routing_key) {
            (Some(queue), None, None) => RabbitmqSettings::to_queue(url, queue),
            (None, Some(exchange), key) => {
                RabbitmqSettings::to_exchange(url, exchange, key.as_deref().unwrap_or_default())
            }
            (Some(_), _, _) | (None, None, _) => {
                return Err("name a queue, or an exchange and a routing_key".to_owned());
            }
        };
        if let Some(reaches_one_queue) = self.reaches_one_queue {
            settings.reaches_one_queue = reaches_one_queue;
        }
        if let Some(channel_max) = self.channel_max {
            settings.channel_max = channel_max;
        }
        settings.timeout = timeout(section, terms);
        carrier(RabbitmqCarrier::new(settings))
    }
}

impl RedisSection {
    pub(super) fn build(
        &self,
        section: &TermsSection,
        terms: &mut Terms,
    ) -> Result<Arc<dyn Carrier>, String> {
        let url = named("url", self.url.read())?;
        let mut settings = RedisStreamsSettings::new(url, &self.stream);
        if let Some(dedupe_for) = section.dedupe_for {
            settings.dedupe_for = dedupe_for.0;
        }
        if let Some(creates_stream) = self.creates_stream {
            settings.creates_stream = creates_stream;
        }
        settings.length_max = self.length_max;
        settings.timeout = timeout(section, terms);
        // Here the window is ours to set, and Redis can be asked within it.
        terms.dedupe_for = settings.dedupe_for;
        terms.can_be_asked = true;
        carrier(RedisStreamsCarrier::new(settings))
    }
}

/// The broker's own time limit; a delivery may take it twice.
fn timeout(section: &TermsSection, terms: &mut Terms) -> Duration {
    let timeout = section.timeout.map_or(TIMEOUT_DEFAULT, |span| span.0);
    terms.timeout = timeout.saturating_mul(2);
    timeout
}

fn carrier<C: Carrier>(made: Result<C, SettingsError>) -> Result<Arc<dyn Carrier>, String> {
    match made {
        Ok(carrier) => Ok(Arc::new(carrier)),
        Err(error) => Err(error.to_string()),
    }
}
