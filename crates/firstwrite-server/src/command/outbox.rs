//! The flags of `firstwrite outbox`.

use clap::{ArgGroup, Args, Subcommand};
use firstwrite_core::Tenant;
use firstwrite_core::outbox::{MessageNumber, MessageState};

use super::looking::{LookFlags, WordFlags};
use super::values::{destination, message_number, message_state, rate, reason, tenant, text};
use crate::outbox::Rate;

pub(super) const EXAMPLES: &str = "\
Example:
  firstwrite outbox status --store sqlite:firstwrite-demo.db
  firstwrite outbox list --store sqlite:firstwrite-demo.db --state unknown

`status`, `list`, `show` and the preview of `redrive` only read and work beside a running
service. The others work beside a service on PostgreSQL; a SQLite file they need for
themselves.";

const LIST_EXAMPLES: &str = "\
Example:
  firstwrite outbox list --store postgres://app@db/shop --state dead --problem 404

States: waiting (due, or will be), sending (a worker has it), unknown (it may or may
not have arrived), dead (no longer delivered by itself), delivered, dropped.";

const SHOW_EXAMPLES: &str = "\
Example:
  firstwrite outbox show 42 --store postgres://app@db/shop --payload

Exit codes: 0 shown, 1 failed, 2 wrong usage, 3 there is no such message.";

const REDRIVE_EXAMPLES: &str = "\
Examples:
  firstwrite outbox redrive --store postgres://app@db/shop --destination provider
  firstwrite outbox redrive --store postgres://app@db/shop --destination provider \\
      --problem 404 --yes --reason 'the route is back' --rate 20/s

Without --yes it says how many would be put back, and changes nothing. Only dead letters
are put back, under their old keys. What was cut off goes on when it is run again.

Exit codes: 0 done, 1 failed, 2 wrong usage.";

const PAUSE_EXAMPLES: &str = "\
Example:
  firstwrite outbox pause provider --store postgres://app@db/shop --reason 'maintenance'

Messages are still written and wait. Deliveries under way end. It stays paused until
`firstwrite outbox resume`.";

const RESUME_EXAMPLES: &str = "\
Example:
  firstwrite outbox resume provider --store postgres://app@db/shop --reason 'it is back'

Ends a pause, and lets a destination that is left alone be tried at once.";

const SETTLE_EXAMPLES: &str = "\
Examples:
  firstwrite outbox settle 42 --store postgres://app@db/shop --delivered \\
      --provider-id ch_7 --reason 'found in their dashboard'
  firstwrite outbox settle 43 --store postgres://app@db/shop --not-delivered \\
      --reason 'they have no such charge'
  firstwrite outbox settle 44 --store postgres://app@db/shop --refused \\
      --reason 'they will never take it'
  firstwrite outbox settle 45 --store postgres://app@db/shop --drop --reason 'a test'

With --delivered and --refused a client that waits gets its final answer; with
--not-delivered the message is sent again as if it never had been; with --drop a message
that no client waits for is given up. Messages that wait behind it go on.

Of a message that may have arrived, --not-delivered and --refused count from an hour after
its last delivery on: what was sent may still be under way. Look again then, or add --force.

Exit codes: 0 settled, 1 failed, 2 wrong usage, 3 there is no such message,
4 it is settled already, 5 a worker is delivering it now, or it is too early to tell.";

#[derive(Debug, Args)]
pub(crate) struct OutboxFlags {
    #[command(flatten, next_help_heading = "Options of every outbox command")]
    pub(crate) shared: LookFlags,
    #[command(subcommand)]
    pub(crate) command: OutboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Show how each destination stands
    Status,
    /// List messages, page by page
    #[command(after_help = LIST_EXAMPLES)]
    List(OutboxListFlags),
    /// Show one message, its deliveries, and what operators did to it
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OutboxShowFlags),
    /// Put dead letters back, to be delivered again
    #[command(after_help = REDRIVE_EXAMPLES)]
    Redrive(RedriveFlags),
    /// Send nothing to a destination until it is resumed
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(PauseFlags),
    /// Let messages go to a destination again
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(PauseFlags),
    /// Say what became of a message, once you have found out
    #[command(after_help = SETTLE_EXAMPLES)]
    Settle(OutboxSettleFlags),
}

#[derive(Debug, Args)]
pub(crate) struct OutboxListFlags {
    /// Only messages to this destination
    #[arg(long, value_parser = destination, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only messages in this state
    #[arg(long, value_parser = message_state)]
    pub(crate) state: Option<MessageState>,
    /// Only this tenant's messages
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// Only messages whose last problem has this text in it, or this HTTP status
    #[arg(long, value_parser = text, value_name = "TEXT")]
    pub(crate) problem: Option<String>,
    /// Only the message with this derived key: <client key>:<step>
    #[arg(long, value_parser = text, value_name = "DERIVED_KEY")]
    pub(crate) key: Option<String>,
    /// Start after this message, as the last page said
    #[arg(long, value_parser = message_number, value_name = "NUMBER")]
    pub(crate) after: Option<MessageNumber>,
    /// At most this many messages, up to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct OutboxShowFlags {
    /// Number of the message
    #[arg(value_parser = message_number)]
    pub(crate) number: MessageNumber,
    /// Show the payload too
    #[arg(long)]
    pub(crate) payload: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true)
    .args(["destination", "problem", "tenant", "all"]))]
pub(crate) struct RedriveFlags {
    /// Dead letters to this destination
    #[arg(long, value_parser = destination, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Dead letters whose last problem has this text in it, or this HTTP status
    #[arg(long, value_parser = text, value_name = "TEXT")]
    pub(crate) problem: Option<String>,
    /// Dead letters of this tenant
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// All dead letters
    #[arg(long, conflicts_with_all = ["destination", "problem", "tenant"])]
    pub(crate) all: bool,
    /// Do it; without this, nothing is changed
    #[arg(long, requires = "reason")]
    pub(crate) yes: bool,
    /// Number of messages to put back in a second (/s), minute (/m) or hour (/h)
    #[arg(long, value_parser = rate, default_value = "50/s", value_name = "COUNT/UNIT")]
    pub(crate) rate: Rate,
    /// Reason why they can be delivered now; kept in the audit entries
    #[arg(long, value_parser = reason)]
    pub(crate) reason: Option<String>,
    /// Your name; kept in the audit entries [default: the system's user]
    #[arg(long, value_parser = reason)]
    pub(crate) actor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PauseFlags {
    /// Name of the destination
    #[arg(value_parser = destination, value_name = "NAME")]
    pub(crate) destination: String,
    #[command(flatten)]
    pub(crate) word: WordFlags,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a flag, and one of them is given")]
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("finding").required(true)
    .args(["delivered", "not_delivered", "refused", "drop"]))]
pub(crate) struct OutboxSettleFlags {
    /// Number of the message
    #[arg(value_parser = message_number)]
    pub(crate) number: MessageNumber,
    /// It arrived
    #[arg(long)]
    pub(crate) delivered: bool,
    /// The provider's id for it
    #[arg(long, value_parser = text, value_name = "ID", requires = "delivered")]
    pub(crate) provider_id: Option<String>,
    /// It certainly did not arrive: send it again
    #[arg(long)]
    pub(crate) not_delivered: bool,
    /// It did not arrive and never will: tell the client so
    #[arg(long)]
    pub(crate) refused: bool,
    /// It is not to be delivered any more; only where no client waits for it
    #[arg(long)]
    pub(crate) drop: bool,
    /// Believe that it did not arrive although a delivery may still be under way
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) word: WordFlags,
}
