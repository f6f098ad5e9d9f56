//! Settings from a file, and the values that flags, environment and file share.
//!
//! A flag wins over the environment, and both over the file. An unknown or wrong key is refused
//! with its line before anything is opened.

use std::fmt;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use firstwrite::worker::{RECONCILE_EVERY, Schedule};
use firstwrite_core::Secrets;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::opening::NamedStore;
use crate::telemetry::LogFormat;

mod destinations;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gateway;
mod given;
mod lives;
mod mistake;
mod probe;
mod reconcile;
mod sealing;
mod store_url;
#[cfg(test)]
#[cfg(all(feature = "kafka", feature = "otlp"))]
mod walk;

pub(crate) use destinations::Destinations;
pub(crate) use gateway::{ForwardKey, GatewaySection, Upstream};
pub(crate) use given::{Given, open_file};
use mistake::Mistake;
pub(crate) use reconcile::{Export, Reconcile};
pub(crate) use sealing::SealingSection;
pub(crate) use store_url::StoreUrl;

/// A settings file is a page; anything larger is the wrong file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Settings of the file given with `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Address of the store that holds records and messages. Without it, the gateway takes
    /// `sqlite:firstwrite.db`, the demo `sqlite:firstwrite-demo.db`, and other commands need `--store`.
    pub(crate) store: Option<StoreUrl>,
    /// Level or filter of log lines, such as `"warn,firstwrite=debug"`. `info` or `warn` alone is the level of
    /// firstwrite, and of libraries only errors are logged. Services log at `info` and other commands at
    /// `warn` unless it is set.
    pub(crate) log: Option<String>,
    /// Form of log lines on standard error. Default: `"text"`.
    pub(crate) log_format: Option<LogFormat>,
    /// Settings of `firstwrite demo`.
    #[serde(default)]
    pub(crate) demo: DemoSection,
    /// Settings of `firstwrite gateway`.
    #[serde(default)]
    pub(crate) gateway: GatewaySection,
    /// Keys that encrypt outcomes at rest.
    #[serde(default)]
    pub(crate) sealing: SealingSection,
    /// Intervals of the loops that look after a store.
    #[serde(default)]
    pub(crate) worker: WorkerSection,
    /// Settings of `firstwrite doctor`.
    #[serde(default)]
    pub(crate) doctor: DoctorSection,
    /// Accounts of providers that messages and records are compared with.
    #[serde(default)]
    pub(crate) reconcile: Reconcile,
    // Read apart from the rest, since each kind has settings of its own.
    /// Destinations of messages.
    #[serde(skip)]
    pub(crate) destinations: Destinations,
    // No setting.
    #[serde(skip)]
    pub(crate) gateway_part: GatewayPart,
}

/// The part of `[gateway]` that a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GatewayPart {
    #[default]
    Absent,
    /// No more than `default` and `operations`, which a file for an application of one's own may have too.
    Operations,
    /// The set-up of a gateway.
    Whole,
}

/// The `[worker]` section. A gateway runs the first three loops too.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "these are the names in the file")]
pub(crate) struct WorkerSection {
    /// Interval of the search for lapsed leases. Default: `"5s"`.
    pub(crate) sweep_every: Option<Span>,
    /// Interval of deleting records past their retention. Default: `"1m"`.
    pub(crate) reap_every: Option<Span>,
    /// Interval of folding the outbox's counts and deleting its old messages. Default: `"10s"`.
    pub(crate) upkeep_every: Option<Span>,
    /// Interval of reconciling each source that has `http`, by `firstwrite worker` alone. Default: `"24h"`.
    pub(crate) reconcile_every: Option<Span>,
}

/// The `[doctor]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoctorSection {
    /// Name of the synchronous standby that a PostgreSQL store must have; its absence is unsafe.
    pub(crate) expect_standby: Option<String>,
}

/// The `[demo]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DemoSection {
    /// Address to listen at. Default: `"127.0.0.1:8080"`.
    pub(crate) listen: Option<Listen>,
    /// Lets a request ask for trouble with `X-Demo-Fault`. Default: `false`.
    pub(crate) faults: Option<bool>,
    /// Time for which an outcome is replayed; at least 24 hours, for which the provider recognises a key.
    /// Default: `"24h"`.
    pub(crate) retention: Option<Span>,
    /// Time that requests under way get at shutdown. Default: `"10s"`.
    pub(crate) drain: Option<Span>,
    /// Time that a caller waits for the provider's answer before it gets a 202. Default: `"2s"`.
    pub(crate) wait_for: Option<Span>,
    /// Address of a provider to use instead of the demo's own.
    pub(crate) provider: Option<String>,
}

/// Address to listen on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Listen(pub(crate) SocketAddr);

/// A length of time with its unit, such as `30s`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl File {
    /// The store that was given by flag, environment or file; most commands need one.
    pub(crate) fn store_or(&self, given_store: Option<&str>) -> Result<StoreUrl, UsageError> {
        given("--store", given_store, self.store.clone())?.ok_or_else(|| {
            UsageError::new(
                "no store is named; add --store sqlite:PATH or --store postgres://…, or set \
                 FIRSTWRITE_STORE, or `store` in the config file",
            )
        })
    }
}

impl File {
    /// The store that was given, with the keys of `[sealing]`.
    pub(crate) fn named_store(&self, given_store: Option<&str>) -> Result<NamedStore, UsageError> {
        Ok(NamedStore { url: self.store_or(given_store)?, ring: self.sealing.ring()? })
    }

    /// The key that a gateway with this file passes on; `None` if the file says nothing of a gateway.
    pub(crate) fn forward_key(&self) -> Option<ForwardKey> {
        (self.gateway_part != GatewayPart::Absent).then_some(self.gateway.forward_key)
    }

    /// Returns the secrets that key a gateway's fingerprints: configured ones first, then those derived from
    /// the keys of `[sealing]`, so that one can be configured while records exist that the other keyed.
    pub(crate) fn fingerprint_secrets(&self) -> Result<Secrets, UsageError> {
        let mut secrets = self.gateway.given_secrets()?;
        secrets.extend(self.sealing.fingerprint_secrets()?);
        Secrets::new(secrets)
            .map_err(|error| UsageError(format!("gateway.fingerprint_secrets: {error}")))
    }
}

/// A wrong use of the program; its one line says what to do instead.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl WorkerSection {
    /// Intervals of the loops that look after a store.
    pub(crate) fn schedule(&self) -> Result<Schedule, UsageError> {
        let usual = Schedule::default();
        Ok(Schedule {
            sweep_every: interval("sweep_every", self.sweep_every, usual.sweep_every)?,
            reap_every: interval("reap_every", self.reap_every, usual.reap_every)?,
            upkeep_every: interval("upkeep_every", self.upkeep_every, usual.upkeep_every)?,
        })
    }

    /// Interval of reconciling a source, if any is compared by schedule.
    pub(crate) fn reconcile_every(&self, has_lists: bool) -> Result<Duration, UsageError> {
        if self.reconcile_every.is_some() && !has_lists {
            return Err(UsageError::new(
                "worker.reconcile_every: no source is compared by schedule; add [reconcile.NAME] with http = \
                 { … }, or leave it out",
            ));
        }
        interval("reconcile_every", self.reconcile_every, RECONCILE_EVERY)
    }
}

fn interval(name: &str, given: Option<Span>, usual: Duration) -> Result<Duration, UsageError> {
    span_or(&format!("worker.{name}"), given, SPAN_MIN, usual)
}

/// The shortest time limit or interval that is not nothing: a loop without a pause would take a whole core.
const SPAN_MIN: Duration = Duration::from_millis(1);

/// The length of time that the file gives for `setting`, at least `min`, or else the usual one.
fn span_or(
    setting: &str,
    given: Option<Span>,
    min: Duration,
    usual: Duration,
) -> Result<Duration, UsageError> {
    match given {
        Some(Span(span)) if span < min => {
            let min = humantime::format_duration(min);
            Err(UsageError(format!("{setting}: at least {min} is needed")))
        }
        Some(Span(span)) => Ok(span),
        None => Ok(usual),
    }
}

impl File {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, UsageError> {
        let name = path.display();
        let mut text = String::new();
        let file = open_file(path)
            .map_err(|error| UsageError(format!("cannot open the config file {name}: {error}")))?;
        file.take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| UsageError(format!("cannot read the config file {name}: {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let message = format!("{name} is over {FILE_BYTES_MAX} bytes; is it the config file?");
            return Err(UsageError(message));
        }
        let mut parsed = Self::parse(&text).map_err(|mistake| {
            let message = &mistake.message;
            UsageError(match mistake.line(&text) {
                Some(line) => format!("{name}:{line}: {message}"),
                None => format!("{name}: {message}"),
            })
        })?;
        let place = |offset| format!("{name}:{}", mistake::line(&text, offset));
        parsed.destinations.locate(place);
        Ok(parsed)
    }

    fn parse(text: &str) -> Result<Self, Mistake> {
        let mut tables = DeTable::parse(text)?;
        let destinations = match tables.get_mut().remove("destinations") {
            Some(value) => Destinations::parse(value)?,
            None => Destinations::default(),
        };
        let gateway_part = GatewayPart::of(tables.get_ref().get("gateway"));
        let file = Self::deserialize(toml::Deserializer::from(tables))?;
        Ok(Self { destinations, gateway_part, ..file })
    }
}

impl GatewayPart {
    fn of(section: Option<&Spanned<DeValue<'_>>>) -> Self {
        let Some(section) = section else { return Self::Absent };
        let is_shared = |name: &str| matches!(name, "default" | "operations");
        match section.get_ref().as_table() {
            Some(table) if table.keys().all(|name| is_shared(name.get_ref())) => Self::Operations,
            Some(_) | None => Self::Whole,
        }
    }
}

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Returns the value of the flag or the environment, or else that of the file.
///
/// A refusal names the flag and says what is expected, without repeating what was given: it may
/// hold a password.
pub(crate) fn given<T>(
    flag: &'static str,
    text: Option<&str>,
    file: Option<T>,
) -> Result<Option<T>, UsageError>
where
    T: FromStr<Err = &'static str>,
{
    match text.map(str::parse) {
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(expected)) => Err(UsageError(format!("{flag}: {expected}"))),
        None => Ok(file),
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "an address and a port are needed, such as 127.0.0.1:8080";
        if let Some(port) = text.strip_prefix("localhost:") {
            let Ok(port) = port.parse() else { return Err(EXPECTED) };
            return Ok(Self((Ipv4Addr::LOCALHOST, port).into()));
        }
        let Ok(address) = text.parse() else { return Err(EXPECTED) };
        Ok(Self(address))
    }
}

/// Whatever is added to a time of today stays a date that every store and header can hold.
const SPAN_MAX: Duration = Duration::from_hours(100 * 8766);

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Ok(duration) = humantime::parse_duration(text) else {
            return Err("a length of time needs a unit, such as \"30s\" or \"24h\"");
        };
        if duration > SPAN_MAX {
            return Err("a length of time is at most 100 years");
        }
        Ok(Self(duration))
    }
}

impl TryFrom<String> for Listen {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for Span {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_key_is_read() {
        let file = File::parse(
            "store = 'sqlite:a.db'\nlog = 'debug'\nlog_format = 'json'\n\
             [demo]\nlisten = 'localhost:9'\nfaults = true\nretention = '2h'\ndrain = '3s'\n\
             [worker]\nsweep_every = '4s'\nreap_every = '5s'\nupkeep_every = '6s'\n\
             [doctor]\nexpect_standby = 'two'\n",
        )
        .unwrap();
        assert_eq!(file.store, Some(StoreUrl::sqlite("a.db")));
        assert_eq!(file.log.as_deref(), Some("debug"));
        assert_eq!(file.log_format, Some(LogFormat::Json));
        assert_eq!(file.demo.listen, Some("127.0.0.1:9".parse().unwrap()));
        assert_eq!(file.demo.faults, Some(true));
        assert_eq!(file.demo.retention, Some(Span(Duration::from_hours(2))));
        assert_eq!(file.demo.drain, Some(Span(Duration::from_secs(3))));
        assert_eq!(file.worker.sweep_every, Some(Span(Duration::from_secs(4))));
        assert_eq!(file.worker.reap_every, Some(Span(Duration::from_secs(5))));
        assert_eq!(file.worker.upkeep_every, Some(Span(Duration::from_secs(6))));
        assert_eq!(file.doctor.expect_standby.as_deref(), Some("two"));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (text, line, word) in [
            ("log = 'info'\nstoer = 'sqlite:a.db'\n", 2, "stoer"),
            ("[demo]\n\nlisten = '8080'\n", 3, "address and a port"),
            ("[demo]\nretention = '24'\n", 2, "unit"),
            ("[demo]\nretention = '101y'\n", 2, "100 years"),
            ("\n\n[dmeo]\n", 3, "dmeo"),
            ("store = 'oracle://u:p@h/d'\n", 1, "sqlite:"),
            ("log = \n", 1, ""),
        ] {
            let wrong = File::parse(text).unwrap_err();
            assert_eq!(wrong.line(text), Some(line), "{text}: {}", wrong.message);
            assert!(wrong.message.contains(word), "{}", wrong.message);
            assert!(!wrong.message.contains('\n'), "{}", wrong.message);
        }
    }
}
