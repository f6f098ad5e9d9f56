//! Every command and flag, declared in one place: what was typed, and the plan that follows from it.
//!
//! Planning has no side effects beyond reading the configuration file: no port, no store, no log.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand};
use firstwrite_core::{Key, KeyError, RecordId, StateKind, Tenant, TenantError};

use crate::config::{File, UsageError};
use crate::output::Format;
use crate::telemetry::LogFormat;
use crate::{demo, keys, telemetry};

const STORE_ENVIRONMENT: &str = "FIRSTWRITE_STORE";

const EXAMPLES: &str = "\
Try it:
  firstwrite demo                 a payments API; prints three curl commands
  firstwrite keys list --store sqlite:firstwrite-demo.db

Settings: a flag wins over the environment, the environment wins over the file given
with --config. Data goes to standard output, everything else to standard error.";

const DEMO_EXAMPLES: &str = "\
Example:
  firstwrite demo --listen 127.0.0.1:0 --store sqlite:/tmp/demo.db --faults

Two tenants are known: `Authorization: Bearer demo-acme` and `Bearer demo-globex`.
With --faults a POST may carry `X-Demo-Fault: delay=500ms`, `status=500`, `panic`,
`crash-before-commit` or `crash-after-commit`.";

const KEYS_EXAMPLES: &str = "\
Example:
  firstwrite keys list --store sqlite:firstwrite-demo.db --state uncertain
  firstwrite keys show acme order-1 --store sqlite:firstwrite-demo.db

`list` and `show` only read and work beside a running service.";

const LIST_EXAMPLES: &str = "\
Example:
  firstwrite keys list --store sqlite:firstwrite-demo.db --tenant acme --format json";

const SHOW_EXAMPLES: &str = "\
Example:
  firstwrite keys show acme order-1 --store sqlite:firstwrite-demo.db --body

Exit codes: 0 shown, 1 failed, 2 wrong usage, 3 nothing stands under the key.";

const RELEASE_EXAMPLES: &str = "\
Example:
  firstwrite keys release acme order-1 --store sqlite:firstwrite-demo.db \\
      --reason 'provider confirms: no charge'

Exit codes: 0 released, 1 failed, 2 wrong usage, 3 nothing stands under the key,
4 the record is completed, 5 an attempt still holds the lease.";

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

/// How a run ended; the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Absent = 3,
    Completed = 4,
    Held = 5,
}

/// What is going to be done: checked, resolved, and not begun.
#[derive(Debug)]
pub(crate) struct Plan {
    telemetry: telemetry::Settings,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Demo(demo::Settings),
    Keys(keys::Settings),
}

#[derive(Debug, Args)]
struct SharedFlags {
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "FIRSTWRITE_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// What to log: a level, or a filter such as `warn,firstwrite=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    #[arg(env = "FIRSTWRITE_LOG", hide_env_values = true)]
    log: Option<String>,
    /// How log lines look on standard error [default: text]
    #[arg(long, global = true, value_enum, value_name = "text|json", hide_possible_values = true)]
    #[arg(env = "FIRSTWRITE_LOG_FORMAT", hide_env_values = true)]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a payments API on an embedded store, to see safe retries work
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoFlags),
    /// Look at the records of a store, and release a key that is stuck
    #[command(after_help = KEYS_EXAMPLES)]
    Keys(KeysFlags),
}

#[derive(Debug, Args)]
pub(crate) struct DemoFlags {
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[arg(env = "FIRSTWRITE_LISTEN", hide_env_values = true)]
    pub(crate) listen: Option<String>,
    /// Where records and payments are kept [default: sqlite:firstwrite-demo.db]
    #[arg(long, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Let a request ask for trouble with X-Demo-Fault; not for a port that others can reach
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_parser = BoolishValueParser::new())]
    #[arg(env = "FIRSTWRITE_FAULTS", hide_env_values = true, hide_possible_values = true)]
    pub(crate) faults: Option<bool>,
}

#[derive(Debug, Args)]
struct KeysFlags {
    #[command(flatten, next_help_heading = "Options of every keys command")]
    shared: SharedKeysFlags,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Args)]
pub(crate) struct SharedKeysFlags {
    /// The store to look into, such as sqlite:firstwrite-demo.db
    #[arg(long, global = true, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// How to print: for people, or one JSON document
    #[arg(long, global = true, value_enum, default_value = "table", value_name = "table|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List records, page by page
    #[command(after_help = LIST_EXAMPLES)]
    List(ListFlags),
    /// Show one record, and what operators did to it
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowFlags),
    /// Free a key whose request is proven not to have been carried out
    #[command(after_help = RELEASE_EXAMPLES)]
    Release(ReleaseFlags),
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    /// Only this tenant's records
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// Only records in this state
    #[arg(long, value_parser = state, value_name = "reserved|completed|uncertain")]
    pub(crate) state: Option<StateKind>,
    /// At most this many records, up to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Start after this record id, as the last page said
    #[arg(long, value_parser = record_id, value_name = "RECORD_ID")]
    pub(crate) after: Option<RecordId>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowFlags {
    /// Whose key it is
    #[arg(value_parser = tenant)]
    pub(crate) tenant: Tenant,
    /// The key, without quotes
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// Show the body of the outcome too
    #[arg(long)]
    pub(crate) body: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseFlags {
    /// Whose key it is
    #[arg(value_parser = tenant)]
    pub(crate) tenant: Tenant,
    /// The key, without quotes
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// How you know that the request was not carried out; kept in the audit entry
    #[arg(long, value_parser = reason)]
    pub(crate) reason: String,
    /// Who you are; kept in the audit entry
    #[arg(long, env = "USER", hide_env_values = true, value_parser = reason)]
    pub(crate) actor: Option<String>,
    /// End an attempt that still holds its lease; what it does meanwhile is not undone
    #[arg(long)]
    pub(crate) force: bool,
}

impl Arguments {
    /// Checks and resolves what was typed.
    pub(crate) fn plan(self) -> Result<Plan, UsageError> {
        let Self { shared, command } = self;
        let file = match &shared.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let (action, log_default) = match command {
            Command::Demo(flags) => (Action::Demo(demo::Settings::resolve(&flags, &file)?), "info"),
            Command::Keys(flags) => {
                let settings = keys::Settings::resolve(&flags.shared, flags.command, &file)?;
                (Action::Keys(settings), "warn")
            }
        };
        let filter = shared.log.or(file.log).unwrap_or_else(|| log_default.to_owned());
        let format = shared.log_format.or(file.log_format).unwrap_or_default();
        Ok(Plan { telemetry: telemetry::Settings::new(&filter, format)?, action })
    }
}

impl Plan {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.telemetry.install();
        match self.action {
            Action::Demo(settings) => demo::run(&settings),
            Action::Keys(settings) => keys::run(&settings),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

fn tenant(text: &str) -> Result<Tenant, TenantError> {
    Tenant::new(text)
}

fn key(text: &str) -> Result<Key, KeyError> {
    Key::new(text)
}

fn state(text: &str) -> Result<StateKind, &'static str> {
    [StateKind::Reserved, StateKind::Completed, StateKind::Uncertain]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or("a state is reserved, completed or uncertain")
}

fn record_id(text: &str) -> Result<RecordId, &'static str> {
    const EXPECTED: &str = "a record id is 32 hexadecimal digits";
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(EXPECTED);
    }
    let Ok(number) = u128::from_str_radix(text, 16) else { return Err(EXPECTED) };
    Ok(RecordId::from_bytes(number.to_be_bytes()))
}

/// An audit entry is a sentence, not a file.
const AUDIT_CHARACTERS_MAX: usize = 500;

fn reason(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > AUDIT_CHARACTERS_MAX {
        return Err("1 to 500 characters are needed, so that others can understand it later");
    }
    if text.chars().any(char::is_control) {
        return Err("control characters are not allowed; write one line");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_declared_flags_hold_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_record_id_is_read_as_it_is_shown() {
        let id = RecordId::from_bytes(*b"0123456789abcdef");
        assert_eq!(record_id(&id.to_string()), Ok(id));
        for wrong in ["", "12", &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(record_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(reason("  no charge "), Ok("no charge".to_owned()));
        for wrong in ["", "   ", "two\nlines", &"x".repeat(AUDIT_CHARACTERS_MAX + 1)] {
            assert!(reason(wrong).is_err());
        }
    }
}
