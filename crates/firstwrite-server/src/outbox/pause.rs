//! `firstwrite outbox pause` and `resume`: whether anything is sent to a destination.

use firstwrite_core::outbox::{Outbox, protocol};
use serde::Serialize;

use crate::command::{Exit, PauseFlags};
use crate::output::{self, Format, printable};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    destination: &'a str,
    /// `paused` or `resumed`.
    result: &'static str,
    /// True if a message or an operator had named the destination before.
    was_known: bool,
}

/// `firstwrite outbox pause`.
pub(super) async fn pause(
    outbox: &dyn Outbox,
    flags: &PauseFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let was_known = is_known(outbox, &flags.destination).await?;
    protocol::pause(outbox, &flags.destination, &flags.word.entry("pause")).await?;
    say(flags, "paused", was_known, format)
}

/// `firstwrite outbox resume`.
pub(super) async fn resume(
    outbox: &dyn Outbox,
    flags: &PauseFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let was_known = is_known(outbox, &flags.destination).await?;
    protocol::resume(outbox, &flags.destination, &flags.word.entry("resume")).await?;
    say(flags, "resumed", was_known, format)
}

async fn is_known(outbox: &dyn Outbox, destination: &str) -> anyhow::Result<bool> {
    Ok(outbox.destinations().await?.iter().any(|seen| seen.name == destination))
}

fn say(
    flags: &PauseFlags,
    result: &'static str,
    was_known: bool,
    format: Format,
) -> anyhow::Result<Exit> {
    let destination = flags.destination.as_str();
    match format {
        Format::Json => output::document(&Answer { destination, result, was_known })?,
        Format::Table => output::data(&format!("{result}: {}\n", printable(destination)))?,
    }
    if !was_known {
        // A pause may well come before the first message; a slip of the finger is likelier.
        output::note("no message to that destination was ever written; check its name");
    }
    Ok(Exit::Done)
}
