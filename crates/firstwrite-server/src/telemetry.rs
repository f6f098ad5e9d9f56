//! Logs: to standard error, structured, filtered, without whole keys or bodies.

use std::panic;

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::config::UsageError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

/// What is logged and how; checked, and not yet installed.
#[derive(Debug)]
pub(crate) struct Settings {
    filter: EnvFilter,
    format: LogFormat,
}

impl Settings {
    pub(crate) fn new(filter: &str, format: LogFormat) -> Result<Self, UsageError> {
        let unreadable = |error| {
            UsageError::new(format!(
                "the log filter cannot be read ({error}); write a level such as info, or \
                 warn,firstwrite=debug"
            ))
        };
        // The last word: it shows whole messages that a broker gave back.
        let filter = format!("{filter},lapin::returned_messages=off");
        let filter = EnvFilter::builder().parse(filter).map_err(unreadable)?;
        Ok(Self { filter, format })
    }

    /// Sends the process's log lines, panics among them, to standard error.
    pub(crate) fn install(self) {
        let lines = tracing_subscriber::fmt()
            .with_env_filter(self.filter)
            .with_writer(std::io::stderr)
            .with_target(true);
        match self.format {
            LogFormat::Text => lines.init(),
            LogFormat::Json => lines.json().init(),
        }
        // A panic's message may carry a caller's data; where it happened is enough to find it.
        panic::set_hook(Box::new(|panicked| {
            let location = panicked.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(location, "panicked");
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        assert!(Settings::new("warn,firstwrite=debug", LogFormat::Text).is_ok());
        assert!(Settings::new("firstwrite=loud", LogFormat::Text).is_err());
    }
}
