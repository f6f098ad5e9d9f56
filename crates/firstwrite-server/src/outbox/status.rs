//! `firstwrite outbox status`: how each destination stands.

use firstwrite_core::Timestamp;
use firstwrite_core::outbox::{DestinationView, Outbox};
use serde::Serialize;

use super::view::due;
use crate::command::Exit;
use crate::keys::{AuditView, brief, instant};
use crate::output::{self, Format, Table};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct StatusDocument {
    destinations: Vec<DestinationDocument>,
    /// The store's clock.
    now: String,
}

#[derive(Debug, Serialize)]
struct DestinationDocument {
    name: String,
    /// Messages that wait or are being sent.
    open: i64,
    unknown: i64,
    dead: i64,
    /// Ever.
    delivered: i64,
    oldest_due_at: Option<String>,
    /// `ready`, `paused`, `left alone` or `to be tried`.
    state: &'static str,
    paused: Option<AuditView>,
    left_alone_until: Option<String>,
    left_alone_because: Option<String>,
    /// Number of consecutive times that it was left alone.
    left_alone_count: u32,
}

pub(super) async fn run(
    outbox: &dyn Outbox,
    now: Timestamp,
    format: Format,
) -> anyhow::Result<Exit> {
    let destinations = outbox.destinations().await?;
    match format {
        Format::Json => {
            let document = |seen| DestinationDocument::of(seen, now);
            let destinations = destinations.iter().map(document).collect();
            output::document(&StatusDocument { destinations, now: instant(now) })?;
        }
        Format::Table => {
            output::data(&table(&destinations, now).to_string())?;
            if destinations.is_empty() {
                output::note("no message was written so far");
            }
        }
    }
    Ok(Exit::Done)
}

fn table(destinations: &[DestinationView], now: Timestamp) -> Table<7> {
    let headings = ["DESTINATION", "OPEN", "UNKNOWN", "DEAD", "DELIVERED", "OLDEST DUE", "STATE"];
    let mut table = Table::new(headings);
    for seen in destinations {
        let oldest = seen.oldest_due_at.map(|at| due(at, now));
        table.row([
            seen.name.clone(),
            seen.open_count.to_string(),
            seen.unknown_count.to_string(),
            seen.dead_count.to_string(),
            seen.delivered_count.to_string(),
            oldest.unwrap_or_else(|| "-".to_owned()),
            in_words(seen, now),
        ]);
    }
    table
}

fn state(seen: &DestinationView, now: Timestamp) -> &'static str {
    match (&seen.paused, seen.open_until) {
        (Some(_), _) => "paused",
        (None, Some(until)) if until > now => "left alone",
        (None, Some(_)) => "to be tried",
        (None, None) => "ready",
    }
}

fn in_words(seen: &DestinationView, now: Timestamp) -> String {
    let state = state(seen, now);
    let cause = seen.open_cause.as_deref().unwrap_or("it was out of order");
    match (&seen.paused, seen.open_until) {
        (Some(paused), _) => {
            let (since, entry) = (brief(now.since(paused.at)), &paused.entry);
            format!("{state} for {since} by {}: {}", entry.actor, entry.reason)
        }
        (None, Some(until)) if until > now => {
            format!("{state} for {} more: {cause}", brief(until.since(now)))
        }
        (None, Some(_)) => format!("{state}: {cause}"),
        (None, None) => state.to_owned(),
    }
}

impl DestinationDocument {
    fn of(seen: &DestinationView, now: Timestamp) -> Self {
        Self {
            name: seen.name.clone(),
            open: seen.open_count,
            unknown: seen.unknown_count,
            dead: seen.dead_count,
            delivered: seen.delivered_count,
            oldest_due_at: seen.oldest_due_at.map(instant),
            state: state(seen, now),
            paused: seen.paused.as_ref().map(AuditView::of),
            left_alone_until: seen.open_until.map(instant),
            left_alone_because: seen.open_cause.clone(),
            left_alone_count: seen.opening_count,
        }
    }
}
