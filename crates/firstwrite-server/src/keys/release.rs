//! `firstwrite keys release`: frees a key on an operator's word, with an audit entry.

use std::time::Duration;

use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{AuditEntry, RecordId, Store};
use serde::Serialize;

use super::view;
use crate::command::{Exit, ReleaseFlags};
use crate::output::{self, Format};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer {
    record_id: String,
    tenant: String,
    key: String,
    /// `released`, `absent`, `completed`, `held` or `moved`.
    result: &'static str,
    /// What happened or what to do next, in words.
    detail: String,
}

pub(super) async fn run(
    store: &dyn Store,
    flags: &ReleaseFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let id = RecordId::of(&flags.tenant, &flags.key);
    let force = if flags.force { Force::Yes } else { Force::No };
    let audit = AuditEntry {
        actor: flags.actor.clone().unwrap_or_else(|| "unknown".to_owned()),
        action: "release".to_owned(),
        reason: flags.reason.clone(),
    };
    let settled = match store.get(id).await? {
        Some(found) => {
            let finding = Settlement::NotHappened;
            protocol::settle(store, &found.record, finding, force, &audit).await?
        }
        None => Settled::Absent,
    };
    let (exit, result, detail) = explain(&settled);
    match format {
        Format::Json => output::document(&Answer {
            record_id: id.to_string(),
            tenant: flags.tenant.to_string(),
            key: flags.key.as_str().to_owned(),
            result,
            detail,
        })?,
        Format::Table if exit == Exit::Done => output::data(&format!("{detail}\n"))?,
        Format::Table => output::error(&detail),
    }
    Ok(exit)
}

fn explain(settled: &Settled) -> (Exit, &'static str, String) {
    match settled {
        Settled::Done => (
            Exit::Done,
            "released",
            "released: the key is free, and the next request with it runs".to_owned(),
        ),
        Settled::Absent => (
            Exit::Absent,
            "absent",
            "nothing stands under this key; check tenant and key with `firstwrite keys list`"
                .to_owned(),
        ),
        Settled::Moved => (
            Exit::Failed,
            "moved",
            "another attempt took the key in the meantime; look again with `firstwrite keys show`"
                .to_owned(),
        ),
        Settled::AlreadyCompleted => (
            Exit::Completed,
            "completed",
            "the record is completed: its outcome never changes, and every retry gets it"
                .to_owned(),
        ),
        Settled::StillHeld(remaining) => (
            Exit::Held,
            "held",
            format!(
                "an attempt still holds the lease for {}; wait, or add --force if you know that \
                 the attempt is dead",
                // Rounded up: whoever waits that long finds the lease gone.
                view::brief(*remaining + Duration::from_millis(999))
            ),
        ),
    }
}
