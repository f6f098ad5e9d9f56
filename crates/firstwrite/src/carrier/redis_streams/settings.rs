//! Settings: the Redis server, and the stream for messages.

use std::fmt;
use std::time::Duration;

use redis::Client;

use crate::carrier::broker::{SettingsError, TIMEOUT_DEFAULT, shown};

/// Settings of a [`RedisStreamsCarrier`](super::RedisStreamsCarrier).
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisStreamsSettings {
    /// `redis://user:password@host:6379/0`, or `rediss://…` for TLS; the platform's certificates are
    /// trusted.
    pub url: String,
    /// The key of the stream.
    pub stream: String,
    /// Time for which Redis remembers what was added; it costs about 150 bytes a message. Default: one hour.
    pub dedupe_for: Duration,
    /// Creates the stream if it is not there. Default: no. A misspelled name is then noticed, and a consumer
    /// group that is made later does not miss what came before it.
    pub creates_stream: bool,
    /// About how many entries the stream keeps; older ones are dropped, read or not. Default: all.
    pub length_max: Option<u64>,
    /// Time that connecting may take, and then the answer; a delivery takes at most twice this. Default: 10 s.
    pub timeout: Duration,
}

impl RedisStreamsSettings {
    /// Long enough for a worker to come back and ask or resend; an hour of 100 messages a second weighs
    /// 50 MB.
    const DEDUPE_DEFAULT: Duration = Duration::from_hours(1);

    /// Adds to the stream `stream` of the server at `url`.
    pub fn new(url: impl Into<String>, stream: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            stream: stream.into(),
            dedupe_for: Self::DEDUPE_DEFAULT,
            creates_stream: false,
            length_max: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) fn client(&self) -> Result<Client, SettingsError> {
        if self.stream.is_empty()
            || (self.stream.contains(['{', '}']) && tag(&self.stream).is_none())
        {
            return Err(SettingsError::new(
                "a stream has a name, and braces in it are those of one hash tag, such as {shop}.orders",
            ));
        }
        if self.dedupe_for.as_millis() == 0 {
            return Err(SettingsError::new("dedupe_for is at least a millisecond"));
        }
        if self.length_max == Some(0) {
            return Err(SettingsError::new("length_max is at least 1"));
        }
        // The error may repeat the address, which may hold a password.
        Client::open(self.url.as_str()).map_err(|_unsafe_to_tell| {
            SettingsError::new("the Redis address cannot be read; write redis://HOST:PORT")
        })
    }

    /// Returns the name under which Redis remembers a wire key: in the hash slot of the stream.
    pub(super) fn seen_key(&self, wire_key: &str) -> String {
        match tag(&self.stream) {
            Some(_) => format!("{}:seen:{wire_key}", self.stream),
            None => format!("{{{}}}:seen:{wire_key}", self.stream),
        }
    }
}

/// The part of a key that a cluster looks at, if it has one.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

impl fmt::Debug for RedisStreamsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreamsSettings")
            .field("url", &shown(&self.url))
            .field("stream", &self.stream)
            .field("dedupe_for", &self.dedupe_for)
            .field("creates_stream", &self.creates_stream)
            .field("length_max", &self.length_max)
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_key_is_remembered_in_the_slot_of_its_stream() {
        // What Redis stores: it must never change.
        let settings = RedisStreamsSettings::new("redis://r", "orders");
        assert_eq!(settings.seen_key("order-1:mail:00"), "{orders}:seen:order-1:mail:00");
        let settings = RedisStreamsSettings::new("redis://r", "{shop}.orders");
        assert_eq!(settings.seen_key("a{b}c"), "{shop}.orders:seen:a{b}c");
        assert_eq!(tag(&settings.seen_key("a{b}c")), tag(&settings.stream));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_without_repeating_secrets() {
        let good = RedisStreamsSettings::new("redis://shop:secret@r:6379/0", "orders");
        assert!(good.client().is_ok());
        for stream in ["", "a}b", "a{b", "{}a"] {
            let bad = RedisStreamsSettings { stream: stream.to_owned(), ..good.clone() };
            assert!(bad.client().is_err(), "{stream}");
        }
        assert!(
            RedisStreamsSettings { dedupe_for: Duration::ZERO, ..good.clone() }.client().is_err()
        );
        assert!(RedisStreamsSettings { length_max: Some(0), ..good.clone() }.client().is_err());
        let bad = RedisStreamsSettings { url: "http://shop:secret@r".to_owned(), ..good.clone() };
        assert!(!bad.client().unwrap_err().to_string().contains("secret"));
        let shown = format!("{good:?}{bad:?}");
        assert!(shown.contains("redis://r:6379") && !shown.contains("secret"), "{shown}");
    }
}
