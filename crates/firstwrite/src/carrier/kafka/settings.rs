//! Settings: the brokers, and the topic for messages.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;

use crate::carrier::broker::{SettingsError, TIMEOUT_DEFAULT, shown};

/// Options that delivery depends on, so that settings may not change them.
const FIXED: [&str; 9] = [
    "acks",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "message.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
    "transactional.id",
];

/// Settings of a [`KafkaCarrier`](super::KafkaCarrier).
#[derive(Clone)]
#[non_exhaustive]
pub struct KafkaSettings {
    /// `host:9092`, or several separated by commas, of which any will do.
    pub servers: String,
    /// The topic; it should be there already.
    pub topic: String,
    /// Options of librdkafka by their names, such as `security.protocol`, `sasl.username` or
    /// `compression.type`. Default: none, so that librdkafka's own defaults hold.
    pub options: BTreeMap<String, String>,
    /// Time that the brokers may take to be found, and then a record to be stored, retransmissions included; a
    /// delivery takes at most twice this and ten seconds. Default: 10 s.
    pub timeout: Duration,
}

impl KafkaSettings {
    /// Below this the client would give up before a broker had a chance.
    const TIMEOUT_MIN: Duration = Duration::from_millis(100);

    /// Writes to `topic` of the cluster at `servers`.
    pub fn new(servers: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            topic: topic.into(),
            options: BTreeMap::new(),
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if self.servers.is_empty() || self.servers.contains('\0') {
            return Err(SettingsError::new("name the Kafka servers; write HOST:PORT"));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=249).contains(&self.topic.len()) || !self.topic.bytes().all(is_plain) {
            return Err(SettingsError::new(
                "a Kafka topic is letters, digits, dots, underscores and dashes, at most 249",
            ));
        }
        if self.timeout < Self::TIMEOUT_MIN {
            return Err(SettingsError::new("a timeout for Kafka is at least 100 ms"));
        }
        if let Some(name) = FIXED.iter().find(|name| self.options.contains_key(**name)) {
            return Err(SettingsError::new(format!("the option `{name}` cannot be set here")));
        }
        // The error would repeat the value, which may be a password.
        self.config().create_native_config().map(drop).map_err(|_unsafe_to_tell| {
            SettingsError::new(
                "one of the Kafka options is unknown to this build, or has a wrong value",
            )
        })
    }

    pub(super) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        // A message that is out of time is told only between two attempts to reach its broker; the
        // client's own ten seconds would make it wait for them.
        config.set("reconnect.backoff.max.ms", "1000");
        for (name, value) in &self.options {
            config.set(name, value);
        }
        // With idempotence the client's own repetitions are recognised by the brokers, in order.
        config
            .set("bootstrap.servers", &self.servers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", self.timeout.as_millis().to_string());
        config
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSettings")
            .field("servers", &shown(&self.servers))
            .field("topic", &self.topic)
            // Their values may be passwords.
            .field("options", &self.options.keys())
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_without_repeating_secrets() {
        let with = |name: &str, value: &str| {
            let mut settings = KafkaSettings::new("k:9092", "orders.paid");
            settings.options.insert(name.to_owned(), value.to_owned());
            settings
        };
        let good = with("sasl.password", "secret");
        assert_eq!(good.check(), Ok(()));
        let shown = format!("{good:?}");
        assert!(shown.contains("sasl.password") && !shown.contains("secret"), "{shown}");
        for bad in [
            with("acks", "1"),
            with("transactional.id", "t"),
            with("no.such.option", "secret"),
            with("compression.type", "secret"),
            KafkaSettings::new("", "orders"),
            KafkaSettings::new("k:9092", "a b"),
            KafkaSettings { timeout: Duration::ZERO, ..good.clone() },
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
