//! The flags of the commands that run or look after a store: demo, worker, migrate, doctor.

use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

use super::STORE_ENVIRONMENT;
use super::values::{reason, span};
use crate::output::Format;

pub(super) const DEMO_EXAMPLES: &str = "\
Example:
  firstwrite demo --listen 127.0.0.1:0 --store sqlite:/tmp/demo.db --faults
  firstwrite demo --store postgres://app@127.0.0.1/shop
  firstwrite demo --provider http://127.0.0.1:8090

A payment goes to a payment provider, which runs in the demo's own process unless
--provider names another, such as `firstwrite demo-provider`. Its ledger is beside the
store.

Two tenants are known: `Authorization: Bearer demo-acme` and `Bearer demo-globex`.
With --faults a POST may carry `X-Demo-Fault: delay=500ms`, `status=500`, `panic`,
`crash-before-commit` or `crash-after-commit`.";

pub(super) const WORKER_EXAMPLES: &str = "\
Examples:
  firstwrite worker --store postgres://app@db/shop
  firstwrite worker --store sqlite:payments.db --once --format json
  firstwrite worker --config firstwrite.toml

Messages are delivered to the destinations in the config file, one section each:
  [destinations.provider]
  kind = \"http\"
  url = \"https://api.example.com/v1/payments\"
  headers = { authorization = \"env:PROVIDER_TOKEN\" }
  provider_id = \"/id\"
  dedupe_for = \"24h\"

Any number of workers may run on one PostgreSQL store. A SQLite file belongs to one
process: a service that holds it open runs the loops itself.

Exit codes: 0 stopped or done, 1 failed, 2 wrong usage, 130 cut off by Ctrl-C while it ended.";

pub(super) const MIGRATE_EXAMPLES: &str = "\
Examples:
  firstwrite migrate --store postgres://owner@db/shop --grant-to app
  firstwrite migrate --store postgres://owner@db/shop --dump > firstwrite.sql

Run it as the role that may create tables; the application's role needs no such right.
Nothing else creates a store but `gateway --create` and the demo: a mistyped address would
be an empty store, in which every key used before runs again. An SQLite file that is there
brings itself up to date when a service opens it.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  firstwrite doctor --store postgres://app@db/shop --expect-standby standby1
  firstwrite doctor --store postgres://app@db/shop --format json
  firstwrite doctor --store postgres://app@db/shop --clear-history-loss \\
      --reason 'compared with the provider up to 14:05; nothing is missing'

Exit codes: 0 nothing unsafe was found, 1 failed, 2 wrong usage, 6 something unsafe
was found.";

#[derive(Debug, Args)]
pub(crate) struct DemoFlags {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[arg(env = "FIRSTWRITE_LISTEN", hide_env_values = true)]
    pub(crate) listen: Option<String>,
    /// Store of the records and payments, sqlite:, postgres:, mysql: or redis: [default: sqlite:firstwrite-demo.db]
    #[arg(long, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Let a request ask for trouble with X-Demo-Fault; not for a port that others can reach
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_parser = BoolishValueParser::new())]
    #[arg(env = "FIRSTWRITE_FAULTS", hide_env_values = true, hide_possible_values = true)]
    pub(crate) faults: Option<bool>,
    /// Send payments to this provider instead of one in this process
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_PROVIDER", hide_env_values = true)]
    pub(crate) provider: Option<String>,
    /// Secret with which that provider signs its webhooks [default: that of `firstwrite demo-provider`]
    #[arg(long, value_name = "SECRET")]
    #[arg(env = "FIRSTWRITE_WEBHOOK_SECRET", hide_env_values = true)]
    pub(crate) webhook_secret: Option<String>,
    /// Time that a caller waits for the provider's answer before it gets a 202 [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[arg(env = "FIRSTWRITE_WAIT_FOR", hide_env_values = true)]
    pub(crate) wait_for: Option<Duration>,
}

/// The store that a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreFlags {
    /// The store, such as `postgres://app@db/shop` or `sqlite:firstwrite-demo.db`
    #[arg(long, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
}

/// Output format of a command.
#[derive(Debug, Args)]
pub(crate) struct FormatFlags {
    /// Output format: for people, or one JSON document
    #[arg(long, value_enum, default_value = "table", value_name = "table|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Deliver what is due, take one turn of every other loop, say what was done, and end
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) format: FormatFlags,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// Print the SQL and touch nothing
    #[arg(long)]
    pub(crate) dump: bool,
    /// The schema the tables are in [default: firstwrite, or `schema=` of the address]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// Let this role use the tables, without any right to change their shape
    #[arg(long, value_name = "ROLE")]
    pub(crate) grant_to: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("settles").args(["clear_history_loss", "confirm_clock"]).multiple(true))]
pub(crate) struct DoctorFlags {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    /// There is to be a synchronous standby of this name; its absence is unsafe
    #[arg(long, value_name = "NAME")]
    pub(crate) expect_standby: Option<String>,
    /// Name transactions that are open for longer than this
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = span)]
    pub(crate) open_for_max: Duration,
    /// Clear the store's history losses: they were looked into, and unknown keys may run again. Messages that
    /// are not settled are marked as maybe sent
    #[arg(long, requires = "reason")]
    pub(crate) clear_history_loss: bool,
    /// Count the jumps of an SQLite file's clock as time that passed: the machine was off, its clock is right
    #[arg(long, requires = "reason")]
    pub(crate) confirm_clock: bool,
    /// Your evidence that the loss is settled, or the clock right; kept with it
    #[arg(long, value_parser = reason, requires = "settles")]
    pub(crate) reason: Option<String>,
    /// Your name; kept with it [default: the system's user]
    #[arg(long, value_parser = reason)]
    pub(crate) actor: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatFlags,
}
