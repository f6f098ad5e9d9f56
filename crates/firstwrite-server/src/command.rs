//! Every command and flag, declared in one place: what was typed, and the plan that follows from it.
//!
//! Planning has no side effects beyond reading the configuration file: no port, no store, no log.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{File, UsageError};
use crate::telemetry::LogFormat;
use crate::{demo, demo_provider, doctor, migrate, telemetry, worker};

#[cfg(test)]
mod examples;
mod gateway;
mod keys;
mod looking;
mod operate;
mod outbox;
mod provider;
mod reconcile;
mod stores;
mod values;
mod verify;

pub(crate) use self::gateway::{AuditFlags, CheckFlags, GatewayFlags};
pub(crate) use self::keys::{
    FindingFlags, KeysCommand, KeysFlags, ListFlags, MoveFlags, ReleaseFlags, SettleFlags,
    ShowFlags,
};
pub(crate) use self::looking::LookFlags;
pub(crate) use self::operate::{DemoFlags, DoctorFlags, MigrateFlags, WorkerFlags};
pub(crate) use self::outbox::{
    OutboxCommand, OutboxFlags, OutboxListFlags, OutboxSettleFlags, OutboxShowFlags, PauseFlags,
    RedriveFlags,
};
pub(crate) use self::provider::ProviderFlags;
pub(crate) use self::reconcile::{
    AssignFlags, FindingsFlags, ReconcileCommand, ReconcileFlags, ReconcileRunFlags, ResolveFlags,
};
pub(crate) use self::stores::StoresFlags;
pub(crate) use self::values::record_id;
pub(crate) use self::verify::{BoundsFlags, EffectsFlags, MeansFlags, VerifyFlags};

const STORE_ENVIRONMENT: &str = "FIRSTWRITE_STORE";

const EXAMPLES: &str = "\
Try it:
  firstwrite demo                 a payments API; prints three curl commands
  firstwrite keys list --store sqlite:firstwrite-demo.db

Settings: a flag wins over the environment, the environment wins over the file given
with --config. Data goes to standard output, everything else to standard error.";

/// Safe retries for HTTP: the first write wins, and every retry gets the first answer.
#[derive(Debug, Parser)]
#[command(name = "firstwrite", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten, next_help_heading = "Options of every command")]
    shared: SharedFlags,
    #[command(subcommand)]
    command: Command,
}

/// Result of a run: the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Absent = 3,
    Completed = 4,
    Held = 5,
    Unsafe = 6,
    Found = 7,
    /// As a shell reports a process that Ctrl-C ended: 128 and the number of SIGINT.
    Interrupted = 130,
}

/// A command, checked and resolved, that has not begun.
#[derive(Debug)]
pub(crate) struct Plan {
    telemetry: telemetry::Settings,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Audit(crate::audit::Settings),
    Check(crate::check::Settings),
    Demo(firstwrite_demo::Settings),
    DemoProvider(demo_provider::Settings),
    Gateway(Box<crate::gateway::Settings>),
    Keys(crate::keys::Settings),
    Outbox(crate::outbox::Settings),
    Reconcile(crate::reconcile::Settings),
    Stores(crate::stores::Settings),
    Verify(crate::verify::Settings),
    Worker(worker::Settings),
    Migrate(migrate::Settings),
    Doctor(doctor::Settings),
}

#[derive(Debug, Args)]
struct SharedFlags {
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "FIRSTWRITE_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Log level, or a filter such as `warn,firstwrite=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    #[arg(env = "FIRSTWRITE_LOG", hide_env_values = true)]
    log: Option<String>,
    /// Format of log lines on standard error [default: text]
    #[arg(long, global = true, value_enum, value_name = "text|json", hide_possible_values = true)]
    #[arg(env = "FIRSTWRITE_LOG_FORMAT", hide_env_values = true)]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a payments API, to see safe retries work
    #[command(after_help = operate::DEMO_EXAMPLES)]
    Demo(DemoFlags),
    /// Run a payment provider that misbehaves on request, for the demo and for tests
    #[command(after_help = self::provider::EXAMPLES)]
    DemoProvider(ProviderFlags),
    /// Make retries safe in front of an HTTP API
    #[command(after_help = self::gateway::EXAMPLES)]
    Gateway(GatewayFlags),
    /// List which operations of an API the gateway protects, and which it does not
    #[command(after_help = self::gateway::AUDIT_EXAMPLES)]
    Audit(AuditFlags),
    /// Say whether a config file holds together
    #[command(after_help = self::gateway::CHECK_EXAMPLES)]
    Check(CheckFlags),
    /// Look at the records of a store, and settle or release a key that is stuck
    #[command(after_help = self::keys::EXAMPLES)]
    Keys(KeysFlags),
    /// Look at the messages of a store, and put back, pause or settle what is stuck
    #[command(after_help = self::outbox::EXAMPLES)]
    Outbox(OutboxFlags),
    /// Compare our books with what providers say, and see what does not match
    #[command(after_help = self::reconcile::EXAMPLES)]
    Reconcile(ReconcileFlags),
    /// Say what each kind of store promises, and what shows it
    #[command(after_help = self::stores::EXAMPLES)]
    Stores(StoresFlags),
    /// Ask any API, from outside, whether its retries are safe
    #[command(after_help = self::verify::EXAMPLES)]
    Verify(Box<VerifyFlags>),
    /// Look after a store: deliver messages, free lapsed keys, delete what is past its retention
    #[command(after_help = operate::WORKER_EXAMPLES)]
    Worker(WorkerFlags),
    /// Create a store, or bring it up to date
    #[command(after_help = operate::MIGRATE_EXAMPLES)]
    Migrate(MigrateFlags),
    /// Name what is unsafe or troubled about a store, and what to do about it
    #[command(after_help = operate::DOCTOR_EXAMPLES)]
    Doctor(DoctorFlags),
}

impl Arguments {
    /// Checks and resolves what was typed.
    pub(crate) fn plan(self) -> Result<Plan, UsageError> {
        let Self { shared, command } = self;
        let file = match &shared.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let log_default = match &command {
            Command::Demo(_)
            | Command::DemoProvider(_)
            | Command::Gateway(_)
            | Command::Worker(_) => "info",
            Command::Audit(_)
            | Command::Check(_)
            | Command::Keys(_)
            | Command::Outbox(_)
            | Command::Reconcile(_)
            | Command::Stores(_)
            | Command::Verify(_)
            | Command::Migrate(_)
            | Command::Doctor(_) => "warn",
        };
        let action = match command {
            Command::Demo(flags) => Action::Demo(demo::resolve(&flags, &file)?),
            Command::DemoProvider(flags) => {
                Action::DemoProvider(demo_provider::Settings::resolve(&flags)?)
            }
            Command::Audit(flags) => Action::Audit(crate::audit::Settings::resolve(flags, &file)?),
            Command::Check(flags) => {
                let path = shared.config.as_deref();
                Action::Check(crate::check::Settings::resolve(flags, &file, path)?)
            }
            Command::Gateway(flags) => {
                let path = shared.config.clone();
                let settings = crate::gateway::Settings::resolve(flags, &file, path)?;
                Action::Gateway(Box::new(settings))
            }
            Command::Keys(flags) => {
                let (shared, command) = (flags.shared, flags.command);
                Action::Keys(crate::keys::Settings::resolve(&shared, command, &file)?)
            }
            Command::Outbox(flags) => {
                let (shared, command) = (flags.shared, flags.command);
                Action::Outbox(crate::outbox::Settings::resolve(&shared, command, &file)?)
            }
            Command::Reconcile(flags) => {
                let (shared, command) = (flags.shared, flags.command);
                Action::Reconcile(crate::reconcile::Settings::resolve(&shared, command, &file)?)
            }
            Command::Stores(flags) => Action::Stores(crate::stores::Settings::resolve(&flags)?),
            Command::Verify(flags) => Action::Verify(crate::verify::Settings::resolve(*flags)?),
            Command::Worker(flags) => Action::Worker(worker::Settings::resolve(&flags, &file)?),
            Command::Migrate(flags) => Action::Migrate(migrate::Settings::resolve(flags, &file)?),
            Command::Doctor(flags) => Action::Doctor(doctor::Settings::resolve(flags, &file)?),
        };
        let filter = shared.log.or(file.log).unwrap_or_else(|| log_default.to_owned());
        let format = shared.log_format.or(file.log_format).unwrap_or_default();
        let collector =
            if let Action::Gateway(settings) = &action { settings.collector() } else { None };
        let telemetry = telemetry::Settings::new(&filter, format)?.tracing_to(collector.cloned());
        Ok(Plan { telemetry, action })
    }
}

/// The flags of a command on whose line nothing is written: what the environment says, and defaults.
pub(crate) fn without_words<F: Args>() -> Result<F, UsageError> {
    let matches = F::augment_args(clap::Command::new("firstwrite"));
    let matches = matches.try_get_matches_from(["firstwrite"]);
    matches.and_then(|matches| F::from_arg_matches(&matches)).map_err(|error| {
        let message = error.to_string();
        UsageError::new(message.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

impl Plan {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        // What was collected is sent when this is dropped.
        let _telemetry = self.telemetry.install()?;
        match self.action {
            Action::Demo(settings) => demo::run(&settings),
            Action::DemoProvider(settings) => demo_provider::run(&settings),
            Action::Audit(settings) => crate::audit::run(&settings),
            Action::Check(settings) => crate::check::run(&settings),
            Action::Gateway(settings) => crate::gateway::run(*settings),
            Action::Keys(settings) => crate::keys::run(&settings),
            Action::Outbox(settings) => crate::outbox::run(&settings),
            Action::Reconcile(settings) => crate::reconcile::run(&settings),
            Action::Stores(settings) => crate::stores::run(&settings),
            Action::Verify(settings) => crate::verify::run(settings),
            Action::Worker(settings) => worker::run(&settings),
            Action::Migrate(settings) => migrate::run(&settings),
            Action::Doctor(settings) => doctor::run(&settings),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_declared_flags_hold_together() {
        Arguments::command().debug_assert();
    }
}
