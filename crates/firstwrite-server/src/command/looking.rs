//! Flags that the commands share which look into a store, and say something about it.

use clap::Args;
use firstwrite_core::AuditEntry;

use super::STORE_ENVIRONMENT;
use super::values::reason;
use crate::actor;
use crate::output::Format;

/// The store and the output format.
#[derive(Debug, Args)]
pub(crate) struct LookFlags {
    /// The store to look into, such as sqlite:firstwrite-demo.db
    #[arg(long, global = true, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Output format: for people, or one JSON document
    #[arg(long, global = true, value_enum, default_value = "table", value_name = "table|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}

/// An operator's reason and name.
#[derive(Debug, Args)]
pub(crate) struct WordFlags {
    /// Why; kept in the audit entry
    #[arg(long, value_parser = reason)]
    pub(crate) reason: String,
    /// Your name; kept in the audit entry [default: the system's user]
    #[arg(long, value_parser = reason)]
    pub(crate) actor: Option<String>,
}

impl WordFlags {
    /// The audit entry for what the operator does.
    pub(crate) fn entry(&self, action: &str) -> AuditEntry {
        AuditEntry {
            actor: actor::name(self.actor.as_deref()),
            action: action.to_owned(),
            reason: self.reason.clone(),
        }
    }
}
