//! The flags of `firstwrite reconcile`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use firstwrite_core::Timestamp;
use firstwrite_core::findings::{FindingKind, FindingNumber, Owner};

use super::looking::{LookFlags, WordFlags};
use super::values::{finding_kind, finding_number, instant, owner, text};

pub(super) const EXAMPLES: &str = "\
Example:
  firstwrite reconcile run --config firstwrite.toml
  firstwrite reconcile findings --store postgres://app@db/shop

Sources are sections of the settings file, as [reconcile.NAME]; docs/outbox.md has them.
A worker with the same file compares each list once a day, once a first run was applied.";

const RUN_EXAMPLES: &str = "\
Examples:
  firstwrite reconcile run --config firstwrite.toml
  firstwrite reconcile run --config firstwrite.toml --apply
  firstwrite reconcile run provider --config firstwrite.toml --from 2026-01-01T00:00:00Z
  firstwrite reconcile run provider --config firstwrite.toml --csv export.csv --apply

The first run of a source, and every run over an export, is a dry run unless --apply is
given: it shows what would be settled.

What is proven is settled: a message or request that the provider has is completed, one
that it certainly does not have is sent again or free. What contradicts our books is noted
for a person; then nothing counts as absent. Without --from it goes on where the last
complete run ended. An export reaches to its newest row that matches, or to --until.

Exit codes: 0 nothing is open, 1 failed or incomplete, 2 wrong usage, 7 discrepancies were
found.";

const RESOLVE_EXAMPLES: &str = "\
Examples:
  firstwrite reconcile resolve 7 --store postgres://app@db/shop --fixed \\
      --reason 'refunded the second charge'
  firstwrite reconcile resolve 8 --store postgres://app@db/shop --accepted \\
      --reason 'a payment by hand'

With --fixed it is open again if it is seen again; with --accepted only if something about
it changes.

Exit codes: 0 closed, 1 failed, 2 wrong usage, 3 there is no such finding, or it is closed.";

#[derive(Debug, Args)]
pub(crate) struct ReconcileFlags {
    #[command(flatten, next_help_heading = "Options of every reconcile command")]
    pub(crate) shared: LookFlags,
    #[command(subcommand)]
    pub(crate) command: ReconcileCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReconcileCommand {
    /// Compare our books with what providers say, settle what is proven, note the rest
    #[command(after_help = RUN_EXAMPLES)]
    Run(ReconcileRunFlags),
    /// List what a person has to look at
    Findings(FindingsFlags),
    /// Give a finding an owner
    Assign(AssignFlags),
    /// Close a finding, once it is dealt with
    #[command(after_help = RESOLVE_EXAMPLES)]
    Resolve(ResolveFlags),
}

#[derive(Debug, Args)]
pub(crate) struct ReconcileRunFlags {
    /// Only these sources; all of them unless named
    #[arg(value_parser = text, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// From when on the provider is to give account
    #[arg(long, value_parser = instant, value_name = "TIME")]
    pub(crate) from: Option<Timestamp>,
    /// Until when; now, unless given
    #[arg(long, value_parser = instant, value_name = "TIME")]
    pub(crate) until: Option<Timestamp>,
    /// Take the account of the one named source from this CSV file
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Compare, and neither settle nor note anything
    #[arg(long, conflicts_with = "apply")]
    pub(crate) dry_run: bool,
    /// Settle and note, also in the first run of a source and over an export
    #[arg(long)]
    pub(crate) apply: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FindingsFlags {
    /// Show this one and what people did to it
    #[arg(value_parser = finding_number)]
    pub(crate) number: Option<FindingNumber>,
    /// Only of this source
    #[arg(long, value_parser = text, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Only of this kind: missing-here, missing-there, differs, duplicate, likely, unproven
    #[arg(long, value_parser = finding_kind)]
    pub(crate) kind: Option<FindingKind>,
    /// Closed ones too
    #[arg(long)]
    pub(crate) all: bool,
    /// Start after this finding, as the last page said
    #[arg(long, value_parser = finding_number, value_name = "NUMBER")]
    pub(crate) after: Option<FindingNumber>,
    /// At most this many, up to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("owner").required(true).args(["to", "to_nobody"]))]
pub(crate) struct AssignFlags {
    /// Number of the finding
    #[arg(value_parser = finding_number)]
    pub(crate) number: FindingNumber,
    /// Its owner from now on
    #[arg(long, value_parser = owner, value_name = "OWNER")]
    pub(crate) to: Option<Owner>,
    /// No owner
    #[arg(long)]
    pub(crate) to_nobody: bool,
    #[command(flatten)]
    pub(crate) word: WordFlags,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("closing").required(true).args(["fixed", "accepted"]))]
pub(crate) struct ResolveFlags {
    /// Number of the finding
    #[arg(value_parser = finding_number)]
    pub(crate) number: FindingNumber,
    /// It was put right
    #[arg(long)]
    pub(crate) fixed: bool,
    /// It is known and stays as it is
    #[arg(long)]
    pub(crate) accepted: bool,
    #[command(flatten)]
    pub(crate) word: WordFlags,
}
