//! The flags of `firstwrite keys`.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use clap::{ArgGroup, Args, Subcommand};
use firstwrite_core::{Key, RecordId, StateKind, Tenant};

use super::looking::LookFlags;
use super::values::{header, kept_status, key, reason, record_id, span, state, tenant};

pub(super) const EXAMPLES: &str = "\
Example:
  firstwrite keys list --store sqlite:firstwrite-demo.db --state uncertain
  firstwrite keys show acme order-1 --store sqlite:firstwrite-demo.db

`list` and `show` only read and work beside a running service. `settle` and `release`
work beside a service on PostgreSQL; a SQLite file they need for themselves.";

const LIST_EXAMPLES: &str = "\
Example:
  firstwrite keys list --store sqlite:firstwrite-demo.db --tenant acme --format json";

const SHOW_EXAMPLES: &str = "\
Examples:
  firstwrite keys show acme order-1 --store sqlite:firstwrite-demo.db --body
  firstwrite keys show order-1 --store sqlite:firstwrite-demo.db
  firstwrite keys show 8fb62d20e1c18e12c4ab64d7a10f2e35 --store sqlite:firstwrite-demo.db

With a key alone, every tenant that the store knows is looked up, which takes long where
there are many records.

Exit codes: 0 shown, 1 failed, 2 wrong usage, 3 nothing stands under the key.";

const RELEASE_EXAMPLES: &str = "\
Example:
  firstwrite keys release acme order-1 --store sqlite:firstwrite-demo.db \\
      --reason 'provider confirms: no charge' --yes

The short form of `firstwrite keys settle --not-happened`.

What would be changed is shown first. On a terminal you are asked; elsewhere nothing is
changed without --yes.

Exit codes: 0 released, 1 failed, 2 wrong usage or not confirmed, 3 nothing stands under the key,
4 the record is completed, 5 an attempt still holds the lease.";

const SETTLE_EXAMPLES: &str = "\
Examples:
  firstwrite keys settle acme order-1 --store postgres://app@db/shop \\
      --reason 'provider has charge ch_7' --status 201 \\
      --header 'content-type: application/json' --header 'location: /payments/7' \\
      --body '{\"id\":7}' --yes
  firstwrite keys settle acme order-2 --store postgres://app@db/shop \\
      --reason 'provider has no such charge' --not-happened --yes

With --status, every retry gets that answer; with --not-happened, the next one runs.

What would be changed is shown first. On a terminal you are asked; elsewhere nothing is
changed without --yes.

Exit codes: 0 settled, 1 failed, 2 wrong usage or not confirmed, 3 nothing stands under the key,
4 the record is completed, 5 an attempt still holds the lease.";

const MOVE_EXAMPLES: &str = "\
Example:
  firstwrite keys migrate --from redis://cache --to postgres://app@db/shop

First start every gateway with `--store NEW --moving-from OLD`; docs/moving.md has all the
steps. The old store is only read. What is there already is left alone, so this can be
broken off and run again.

Exit codes: 0 everything is there, 1 not everything, or failed, 2 wrong usage.";

#[derive(Debug, Args)]
pub(crate) struct KeysFlags {
    #[command(flatten, next_help_heading = "Options of every keys command")]
    pub(crate) shared: LookFlags,
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List records, page by page
    #[command(after_help = LIST_EXAMPLES)]
    List(ListFlags),
    /// Show one record, and what operators did to it
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowFlags),
    /// Say how an uncertain request ended, once you have found out
    #[command(after_help = SETTLE_EXAMPLES)]
    Settle(SettleFlags),
    /// Free a key whose request is proven not to have been carried out
    #[command(after_help = RELEASE_EXAMPLES)]
    Release(ReleaseFlags),
    /// Copy all records into another store, beside services that look into both
    #[command(after_help = MOVE_EXAMPLES)]
    Migrate(MoveFlags),
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
pub(crate) struct MoveFlags {
    /// The store that the records are in
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The store that they go to
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// Start after this record id, where an earlier run was broken off
    #[arg(long, value_parser = record_id, value_name = "RECORD_ID")]
    pub(crate) after: Option<RecordId>,
    /// Time to wait for records whose attempts are still under way
    #[arg(long, value_parser = span, value_name = "TIME", default_value = "60s")]
    pub(crate) wait: Duration,
}

#[derive(Debug, Args)]
#[command(override_usage = "firstwrite keys show [OPTIONS] TENANT KEY\n       \
    firstwrite keys show [OPTIONS] KEY\n       firstwrite keys show [OPTIONS] RECORD_ID")]
pub(crate) struct ShowFlags {
    /// Tenant and key, without quotes; or a key of any tenant; or a record id, as logs have it
    #[arg(value_name = "TENANT KEY | KEY | RECORD_ID", num_args = 1..=2, required = true)]
    pub(crate) words: Vec<String>,
    /// Show the body of the outcome too
    #[arg(long)]
    pub(crate) body: bool,
}

/// The key to settle, the operator and the reason.
#[derive(Debug, Args)]
pub(crate) struct FindingFlags {
    /// The key's tenant
    #[arg(value_parser = tenant)]
    pub(crate) tenant: Tenant,
    /// The key, without quotes
    #[arg(value_parser = key)]
    pub(crate) key: Key,
    /// Your evidence of what became of the request; kept in the audit entry
    #[arg(long, value_parser = reason)]
    pub(crate) reason: String,
    /// Your name; kept in the audit entry [default: the system's user]
    #[arg(long, value_parser = reason)]
    pub(crate) actor: Option<String>,
    /// Do it without asking; without a terminal to ask on, nothing is changed unless this is given
    #[arg(long)]
    pub(crate) yes: bool,
    /// Act although an attempt still holds its lease, or gave up less than an hour ago: what it does
    /// meanwhile is not undone
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseFlags {
    #[command(flatten)]
    pub(crate) finding: FindingFlags,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("ending").required(true).args(["not_happened", "status"]))]
pub(crate) struct SettleFlags {
    #[command(flatten)]
    pub(crate) finding: FindingFlags,
    /// It was not carried out: the key is free, and the next request with it runs
    #[arg(long)]
    pub(crate) not_happened: bool,
    /// It was carried out: every retry is answered with this status
    #[arg(long, value_parser = kept_status)]
    pub(crate) status: Option<StatusCode>,
    /// A header of that answer; may be given more than once
    #[arg(long = "header", value_parser = header, value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The body of that answer
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub(crate) body: Option<String>,
    /// Take the body of that answer from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,
}
