//! Settings: the RabbitMQ server, and the queue or exchange for messages.

use std::fmt;
use std::time::Duration;

use lapin::uri::AMQPUri;

use crate::carrier::broker::{SettingsError, TIMEOUT_DEFAULT, shown};

/// Settings of a [`RabbitmqCarrier`](super::RabbitmqCarrier).
#[derive(Clone)]
#[non_exhaustive]
pub struct RabbitmqSettings {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://…` for TLS; the platform's certificates are
    /// trusted. The default virtual host `/` is written `%2f`, or left out with its slash.
    pub url: String,
    /// The exchange; empty for the default exchange, which knows every queue by its name.
    pub exchange: String,
    /// The routing key; for the default exchange the name of the queue.
    pub routing_key: String,
    /// True if a message gets into one queue at most. Then a queue that does not take it (it is full and
    /// rejects) means that nothing was stored, and the message is sent again. With several queues the others
    /// may have stored it, so it ends as unknown. Default: true for a queue, false for an exchange.
    pub reaches_one_queue: bool,
    /// Maximum number of messages under way at once; each has a channel. Default: 16.
    pub channel_max: u16,
    /// Time that it may take to get a channel, and then the confirmation; a delivery takes at most twice this.
    /// Default: 10 s.
    pub timeout: Duration,
}

impl RabbitmqSettings {
    /// AMQP's limit for names.
    const NAME_BYTES_MAX: usize = 255;

    /// Publishes to the queue `queue`.
    pub fn to_queue(url: impl Into<String>, queue: impl Into<String>) -> Self {
        let reaches_one_queue = true;
        Self { reaches_one_queue, ..Self::to_exchange(url, "", queue) }
    }

    /// Publishes to `exchange` under `routing_key`.
    pub fn to_exchange(
        url: impl Into<String>,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        Self {
            url: url.into(),
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            reaches_one_queue: false,
            channel_max: 16,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        for (what, name) in [("exchange", &self.exchange), ("routing key", &self.routing_key)] {
            if name.len() > Self::NAME_BYTES_MAX {
                let text = format!("a RabbitMQ {what} has at most {} bytes", Self::NAME_BYTES_MAX);
                return Err(SettingsError::new(text));
            }
        }
        if self.exchange.is_empty() && self.routing_key.is_empty() {
            return Err(SettingsError::new("name a queue, or an exchange and a routing key"));
        }
        if self.channel_max == 0 {
            return Err(SettingsError::new("channel_max is at least 1"));
        }
        self.uri().map(drop)
    }

    pub(super) fn uri(&self) -> Result<AMQPUri, SettingsError> {
        // The error may repeat the address, which may hold a password.
        self.url.parse().map_err(|_unsafe_to_tell| {
            SettingsError::new("the RabbitMQ address cannot be read; write amqp://HOST:PORT/VHOST")
        })
    }
}

impl fmt::Debug for RabbitmqSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitmqSettings")
            .field("url", &shown(&self.url))
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("reaches_one_queue", &self.reaches_one_queue)
            .field("channel_max", &self.channel_max)
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(settings: &RabbitmqSettings) -> Result<(), String> {
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn settings_that_cannot_work_are_refused_without_repeating_secrets() {
        let good = RabbitmqSettings::to_queue("amqp://shop:secret@mq:5672/%2f", "orders");
        assert_eq!(checked(&good), Ok(()));
        let bad = RabbitmqSettings { url: "http://shop:secret@mq".to_owned(), ..good.clone() };
        assert!(!checked(&bad).unwrap_err().contains("secret"));
        assert!(checked(&RabbitmqSettings { channel_max: 0, ..good.clone() }).is_err());
        assert!(checked(&RabbitmqSettings { routing_key: String::new(), ..good.clone() }).is_err());
        assert!(checked(&RabbitmqSettings { exchange: "x".repeat(256), ..good.clone() }).is_err());
        let shown = format!("{good:?}{bad:?}");
        assert!(shown.contains("amqp://mq:5672") && !shown.contains("secret"), "{shown}");
    }
}
