//! `firstwrite outbox list`: one page of messages.

use firstwrite_core::outbox::{MessagePage, MessageQuery, Outbox, protocol};
use serde::Serialize;

use super::view::{self, MessageDocument};
use crate::command::{Exit, OutboxListFlags};
use crate::keys::{brief, instant};
use crate::output::{self, Format, Table};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct PageDocument {
    messages: Vec<MessageDocument>,
    /// Value of `--after` for the next page.
    next: Option<i64>,
    /// The store's clock when the page was read.
    now: String,
}

pub(super) async fn run(
    outbox: &dyn Outbox,
    flags: &OutboxListFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let query = MessageQuery {
        destination: flags.destination.clone(),
        state: flags.state,
        tenant: flags.tenant.clone(),
        problem: flags.problem.clone(),
        derived_key: flags.key.clone(),
        record: None,
        after: flags.after,
        limit: usize::from(flags.limit),
    };
    let page = protocol::messages(outbox, &query).await?;
    match format {
        Format::Json => output::document(&PageDocument {
            messages: page.messages.iter().map(MessageDocument::of).collect(),
            next: page.next.map(|number| number.0),
            now: instant(page.now),
        })?,
        Format::Table => {
            output::data(&table(&page).to_string())?;
            if page.messages.is_empty() {
                output::note("no messages match so far");
            }
            if let Some(next) = page.next {
                output::note(&format!("there may be more; add --after {next}"));
            }
        }
    }
    Ok(Exit::Done)
}

fn table(page: &MessagePage) -> Table<10> {
    let headings = [
        "NUMBER",
        "DESTINATION",
        "TENANT",
        "KEY",
        "STATE",
        "TRIES",
        "AGE",
        "DUE",
        "MAYBE SENT",
        "PROBLEM",
    ];
    let mut table = Table::new(headings);
    for message in &page.messages {
        let due = message.due_at.map(|at| view::due(at, page.now));
        let maybe_sent =
            message.maybe_sent_at.map(|at| format!("{} ago", brief(page.now.since(at))));
        table.row([
            message.number.to_string(),
            message.destination.clone(),
            message.tenant.to_string(),
            message.derived_key.clone(),
            message.state.as_str().to_owned(),
            message.delivery_count.to_string(),
            brief(page.now.since(message.created_at)),
            due.unwrap_or_else(|| "-".to_owned()),
            maybe_sent.unwrap_or_else(|| "-".to_owned()),
            message.problem.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}
