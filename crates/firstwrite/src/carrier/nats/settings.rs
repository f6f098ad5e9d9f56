//! Settings: the NATS server, and the subject for messages.

use std::fmt;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use crate::carrier::broker::{SettingsError, TIMEOUT_DEFAULT, shown};

/// Settings of a [`NatsCarrier`](super::NatsCarrier).
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsSettings {
    /// One server, or several separated by commas, of which any will do: `nats://host:4222`,
    /// `nats://user:password@host`, `nats://token@host`, or `tls://…` for TLS always. The platform's
    /// certificates are trusted.
    pub url: String,
    /// Subject to publish to: one subject, without wildcards.
    pub subject: String,
    /// The stream that must be the one to store it; another is refused by the server, with nothing
    /// stored. Default: whichever listens on the subject.
    pub stream: Option<String>,
    /// Content of a `.creds` file: a JWT and an nkey. Default: none.
    pub credentials: Option<String>,
    /// Time that connecting may take, and then the acknowledgement; a delivery takes at most twice this.
    /// Default: 10 s.
    pub timeout: Duration,
}

impl NatsSettings {
    /// Publishes to `subject` of the server at `url`.
    pub fn new(url: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            subject: subject.into(),
            stream: None,
            credentials: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let is_word = |word: &str| {
            let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
            !word.is_empty() && word != "*" && word != ">" && word.chars().all(is_plain)
        };
        if !self.subject.split('.').all(is_word) {
            return Err(SettingsError::new(
                "a NATS subject is words separated by dots, without wildcards or blanks",
            ));
        }
        if self.stream.as_ref().is_some_and(|stream| !is_word(stream)) {
            return Err(SettingsError::new("a NATS stream's name is one word"));
        }
        self.servers()?;
        self.options()?;
        Ok(())
    }

    pub(super) fn servers(&self) -> Result<Vec<ServerAddr>, SettingsError> {
        let parsed = self.url.split(',').map(|url| url.trim().parse::<ServerAddr>());
        // The error repeats the address, which may hold a password.
        parsed.collect::<Result<Vec<_>, _>>().map_err(|_unsafe_to_tell| {
            SettingsError::new("the NATS address cannot be read; write nats://HOST:PORT")
        })
    }

    pub(super) fn options(&self) -> Result<ConnectOptions, SettingsError> {
        let options = ConnectOptions::new().connection_timeout(self.timeout).name("firstwrite");
        match &self.credentials {
            None => Ok(options),
            // The error may repeat parts of it.
            Some(credentials) => options.credentials(credentials).map_err(|_unsafe_to_tell| {
                SettingsError::new(
                    "the NATS credentials cannot be read; give what is in the .creds file",
                )
            }),
        }
    }
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings")
            .field("url", &shown(&self.url))
            .field("subject", &self.subject)
            .field("stream", &self.stream)
            .field("credentials", &self.credentials.as_ref().map(|_| ".."))
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(settings: &NatsSettings) -> Result<(), String> {
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn settings_that_cannot_work_are_refused_without_repeating_secrets() {
        let good = NatsSettings::new("nats://shop:secret@a:4222,tls://b", "orders.paid");
        assert_eq!(checked(&good), Ok(()));
        for subject in ["", "orders.>", "orders.*", "a b", "a..b"] {
            let bad = NatsSettings { subject: subject.to_owned(), ..good.clone() };
            assert!(checked(&bad).unwrap_err().contains("subject"), "{subject}");
        }
        let bad = NatsSettings { url: "http://shop:secret@a".to_owned(), ..good.clone() };
        assert!(!checked(&bad).unwrap_err().contains("secret"));
        let bad = NatsSettings { credentials: Some("secret".to_owned()), ..good.clone() };
        assert!(!checked(&bad).unwrap_err().contains("secret"));
        let shown = format!("{good:?}{bad:?}");
        assert!(shown.contains("nats://a:4222") && !shown.contains("secret"), "{shown}");
    }
}
