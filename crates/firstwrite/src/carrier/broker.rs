//! Code shared by the carriers to brokers: one connection, opened when it is needed.

mod slot;
#[cfg(feature = "_broker-tls")]
mod tls;

use std::error::Error;
use std::fmt::{self, Write as _};
use std::time::Duration;

use firstwrite_core::outbox::{Delivery, Ending, Receipt};

pub(super) use slot::{Session, Slot};
#[cfg(feature = "_broker-tls")]
pub(super) use tls::provide_tls;

/// Time that a broker may take to be reached, and then to answer, unless the settings say otherwise. Brokers
/// answer in milliseconds; ten seconds outlast a leader election.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Settings that no broker could be reached with; says what is wrong, and never repeats a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(String);

impl SettingsError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SettingsError {}

pub(super) fn delivered(provider_id: Option<String>, detail: &str) -> Delivery {
    Delivery::new(Ending::Delivered(Receipt { provider_id }), detail)
}

pub(super) fn retry(detail: impl Into<String>) -> Delivery {
    Delivery::new(Ending::Retry, detail)
}

pub(super) fn unknown(detail: impl Into<String>) -> Delivery {
    Delivery::new(Ending::Unknown, detail)
}

/// An error and what caused it, in one line.
pub(super) fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        // Many errors repeat their cause in their own text.
        if !text.contains(&part) {
            let written = write!(text, ": {part}");
            debug_assert!(written.is_ok(), "a string takes all text");
        }
        cause = error.source();
    }
    text
}

/// Addresses as they may be shown: scheme, host and port; who and with what password are left out.
pub(super) fn shown(addresses: &str) -> String {
    let one = |address: &str| {
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let place = authority.rsplit('@').next().unwrap_or_default();
        if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
    };
    addresses.split(',').map(|address| one(address.trim())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_address_holds_no_password() {
        assert_eq!(shown("amqp://shop:p@ss@mq:5672/%2f?heartbeat=9"), "amqp://mq:5672");
        assert_eq!(shown("nats://token@a:1, tls://u:p@b"), "nats://a:1,tls://b");
        assert_eq!(shown("kafka-1:9092,kafka-2:9092"), "kafka-1:9092,kafka-2:9092");
        assert_eq!(shown("redis://:secret@"), "redis://");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = SettingsError::new("the reason");
        let inner = std::io::Error::other(cause);
        assert_eq!(told(&inner), "the reason");
    }
}
