//! Logs: to standard error, structured, filtered, without whole keys or bodies. Traces: to a collector, if
//! one is named.

mod collector;
#[cfg(feature = "otlp")]
mod traces;

use std::panic;

use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt as _};
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
        let lines = lines.with_filter(capped(filter));
        let installed = match collector {
            None => {
                tracing_subscriber::registry().with(lines).init();
                Installed::without_traces()
            }
            Some(collector) => Installed::with_traces(lines, &collector)?,
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

/// Adds to a filter what no filter can ask for.
fn capped(filter: EnvFilter) -> impl Filter<Registry> {
    filter.and(filter_fn(may_be_logged).with_max_level_hint(LevelFilter::TRACE))
}

/// Below a warning, `h2` writes whole heads into its lines, with the keys and credentials in them.
fn may_be_logged(line: &Metadata<'_>) -> bool {
    let is_h2 = line.target() == "h2" || line.target().starts_with("h2::");
    !is_h2 || *line.level() <= Level::WARN
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
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        assert!(Settings::new("warn,firstwrite=debug", LogFormat::Text).is_ok());
        assert!(Settings::new("firstwrite=loud", LogFormat::Text).is_err());
    }

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_lets_a_library_show_what_clients_sent() {
        for filter in ["trace", "debug", "info,h2=debug", "h2::server=trace,other=debug"] {
            let log = Log::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
            let filter = Settings::new(filter, LogFormat::Text).unwrap().filter;
            let subscriber = tracing_subscriber::registry().with(lines.with_filter(capped(filter)));
            tracing::subscriber::with_default(subscriber, || {
                tracing::debug!(target: "h2", "canary");
                tracing::debug!(target: "h2::server", "malformed path canary");
                tracing::info!(target: "h2::codec::framed_read", "canary");
                let span = tracing::trace_span!(target: "h2::hpack", "decode", header = "canary");
                span.in_scope(|| tracing::warn!(target: "h2::proto", "a warning"));
            });
            let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert!(!logged.contains("canary"), "{logged}");
        }
    }

    #[test]
    fn a_level_alone_is_ours_and_a_filter_is_taken_as_it_is() {
        assert_eq!(
            (&*ours("info"), &*ours(" WARN ")),
            ("error,firstwrite=info", "error,firstwrite=warn")
        );
        for filter in ["info,rustls=info", "rustls=debug", "error", "debug", "trace", "off"] {
            assert_eq!(ours(filter), filter);
        }
    }
}
