//! Logs: to standard error, structured, filtered, without whole keys or bodies. Traces: to a collector, if
//! one is named.

mod collector;
#[cfg(feature = "otlp")]
mod traces;

use std::panic;

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use crate::config::UsageError;
pub(crate) use collector::Collector;

/// Layer that writes log lines.
trait Lines: Layer<Registry> + Send + Sync {}

impl<L: Layer<Registry> + Send + Sync> Lines for L {}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

/// Settings of logs and traces; checked, and not yet installed.
#[derive(Debug)]
pub(crate) struct Settings {
    filter: EnvFilter,
    format: LogFormat,
    collector: Option<Collector>,
}

/// Logs and traces that are installed. Traces that are left are sent when this is dropped.
#[derive(Debug)]
#[must_use = "traces end when it is dropped"]
pub(crate) struct Installed {
    #[cfg(feature = "otlp")]
    _sending: Option<traces::Sending>,
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
        let filter = format!("{},lapin::returned_messages=off", ours(filter));
        let filter = EnvFilter::builder().parse(filter).map_err(unreadable)?;
        Ok(Self { filter, format, collector: None })
    }

    /// Sends traces, too, if there is a collector.
    pub(crate) fn tracing_to(self, collector: Option<Collector>) -> Self {
        Self { collector, ..self }
    }

    /// Sends the process's log lines, panics among them, to standard error.
    pub(crate) fn install(self) -> anyhow::Result<Installed> {
        let Self { filter, format, collector } = self;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let installed = match collector {
            None => {
                tracing_subscriber::registry().with(lines).with(filter).init();
                Installed::without_traces()
            }
            Some(collector) => Installed::with_traces(lines.with_filter(filter), &collector)?,
        };
        // A panic's message may carry a caller's data; where it happened is enough to find it.
        panic::set_hook(Box::new(|panicked| {
            let location = panicked.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(location, "panicked");
        }));
        Ok(installed)
    }
}

#[cfg(feature = "otlp")]
impl Installed {
    fn without_traces() -> Self {
        Self { _sending: None }
    }

    fn with_traces(lines: impl Lines, collector: &Collector) -> anyhow::Result<Self> {
        let (sending, spans) = traces::start(collector)?;
        tracing_subscriber::registry().with(lines).with(spans).init();
        Ok(Self { _sending: Some(sending) })
    }
}

#[cfg(not(feature = "otlp"))]
impl Installed {
    fn without_traces() -> Self {
        Self {}
    }

    fn with_traces(_lines: impl Lines, collector: &Collector) -> anyhow::Result<Self> {
        match *collector {}
    }
}

/// A level alone is that of firstwrite. What is below it says less: a library that warns of what a client sends
/// lets clients write the log. Who wants to hear more names a library, or asks for `debug` or `trace`.
fn ours(filter: &str) -> String {
    match filter.trim().to_ascii_lowercase().as_str() {
        level @ ("warn" | "info") => format!("error,firstwrite={level}"),
        _ => filter.to_owned(),
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

    #[test]
    fn a_level_alone_is_ours_and_a_filter_is_taken_as_it_is() {
        assert_eq!(
            (&*ours("info"), &*ours(" WARN ")),
            ("error,firstwrite=info", "error,firstwrite=warn")
        );
        for filter in ["info,h2=info", "h2=debug", "error", "debug", "trace", "off"] {
            assert_eq!(ours(filter), filter);
        }
    }
}
