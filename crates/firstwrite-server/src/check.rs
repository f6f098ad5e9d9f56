//! `firstwrite check`: whether a config file holds together, before anything is started with it.

use firstwrite::worker::Destination;
use firstwrite::{AfterRetention, Policy, PolicyResolver as _};
use firstwrite_gateway::Operations;

use crate::command::{self, CheckFlags, DemoFlags, DoctorFlags, Exit, GatewayFlags, WorkerFlags};
use crate::config::{File, UsageError};
use crate::{demo, doctor, gateway, output, worker};

/// What was found to hold.
#[derive(Debug)]
pub(crate) struct Settings {
    said: String,
}

/// Stand-ins for what a file may leave to the command line. PostgreSQL, because every setting can be used
/// with it.
const STORE: &str = "postgres://127.0.0.1/firstwrite";
const UPSTREAM: &str = "http://127.0.0.1:3000";

/// What is said where no secret keys fingerprints.
const PLAIN: &str = "PLAIN: whoever reads the store can try guesses at what was asked for, such as card \
                     numbers;\n                set fingerprint_secrets under [gateway], or [sealing]";

impl Settings {
    /// Plans every command that follows the file as its start does, and opens nothing: a file that holds
    /// here is refused by no start.
    pub(crate) fn resolve(
        _flags: &CheckFlags,
        file: &File,
        path: Option<&std::path::Path>,
    ) -> Result<Self, UsageError> {
        let Some(path) = path else {
            return Err(UsageError::new("no file is named; add --config firstwrite.toml"));
        };
        let store = |given: Option<String>| {
            given.or_else(|| file.store.is_none().then(|| STORE.to_owned()))
        };
        let mut flags: GatewayFlags = command::without_words()?;
        flags.store = store(flags.store);
        if flags.upstream.is_empty() && file.gateway.upstreams.is_empty() {
            flags.upstream.push(UPSTREAM.to_owned());
        }
        let gateway = gateway::Settings::resolve(flags, file, Some(path.to_owned()))?;
        let mut flags: WorkerFlags = command::without_words()?;
        flags.store.store = store(flags.store.store);
        let worker = worker::Settings::resolve(&flags, file)?;
        let mut flags: DoctorFlags = command::without_words()?;
        flags.store.store = store(flags.store.store);
        doctor::Settings::resolve(flags, file)?;
        demo::Settings::resolve(&command::without_words::<DemoFlags>()?, file)?;
        let sources = file.reconcile.check()?;
        let destinations = worker.destinations();
        check_lives(destinations, gateway.operations())?;
        let is_sealed = file.sealing.ring()?.is_some();
        let said = format!(
            "{}: holds\n  upstreams     {}\n  destinations  {}\n  accounts      {sources}\n  \
             sealed        {}\n  fingerprints  {}\n",
            path.display(),
            file.gateway.upstreams.len(),
            destinations.len(),
            if is_sealed { "yes" } else { "no" },
            if file.fingerprint_secrets()?.is_empty() { PLAIN } else { "keyed" }
        );
        Ok(Self { said })
    }
}

/// Refuses a destination that recognises a key for longer than the key lives here: a later request under the
/// same key would be answered with the effect of the earlier one.
fn check_lives(destinations: &[Destination], operations: &Operations) -> Result<(), UsageError> {
    let lives = operations.known().into_iter().map(|policy| match policy.after_retention {
        AfterRetention::Fresh => policy.retention,
        AfterRetention::Refuse(span) => policy.retention.saturating_add(span),
    });
    let shortest = lives.min().unwrap_or(Policy::RETENTION_DEFAULT);
    match destinations.iter().find(|one| one.terms().dedupe_for > shortest) {
        None => Ok(()),
        Some(one) => Err(UsageError::new(format!(
            "destination {}: dedupe_for is {}, and a key is free again after {}: a second order under it would \
             be answered with the first one's payment; make retention at least as long (under \
             [gateway.default], also for the operations of an application of your own)",
            one.name(),
            humantime::format_duration(one.terms().dedupe_for),
            humantime::format_duration(shortest)
        ))),
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    output::data(&settings.said)?;
    Ok(Exit::Done)
}
