//! `firstwrite keys list`: one page of records.

use firstwrite_core::{Page, Query, StateFilter, Store};
use serde::Serialize;

use super::view::{self, RecordView};
use crate::command::{Exit, ListFlags};
use crate::output::{self, Format, Table};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct PageView {
    records: Vec<RecordView>,
    /// Value of `--after` for the next page.
    next: Option<String>,
    /// The store's clock when the page was read.
    now: String,
}

pub(super) async fn run(
    store: &dyn Store,
    flags: &ListFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let query = Query {
        tenant: flags.tenant.clone(),
        state: flags.state.map(StateFilter::from),
        after: flags.after,
        limit: usize::from(flags.limit),
    };
    let page = store.list(&query).await?;
    match format {
        Format::Json => output::document(&PageView {
            records: page.records.iter().map(RecordView::of).collect(),
            next: page.next.map(|id| id.to_string()),
            now: view::instant(page.now),
        })?,
        Format::Table => {
            output::data(&table(&page).to_string())?;
            if page.records.is_empty() {
                output::note("no records match");
            }
            if let Some(next) = page.next {
                output::note(&format!("there are more; add --after {next}"));
            }
        }
    }
    Ok(Exit::Done)
}

fn table(page: &Page) -> Table<7> {
    let mut table = Table::new(["TENANT", "KEY", "STATE", "OPERATION", "STATUS", "AGE", "EXPIRES"]);
    for record in &page.records {
        let seen = RecordView::of(record);
        table.row([
            seen.tenant,
            seen.key,
            seen.state.to_owned(),
            seen.operation,
            seen.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            view::brief(page.now.since(record.created_at)),
            view::expiry(&record.state, page.now),
        ]);
    }
    table
}
