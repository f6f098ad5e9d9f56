//! `firstwrite keys show`: one record or all that one key stands for, and what operators did to them.

use firstwrite_core::{RecordId, Store, StoreErrorKind};
use serde::Serialize;

use super::find::{self, Search, Wanted};
use super::story::Story;
use super::upstream::Known;
use crate::command::{Exit, ShowFlags};
use crate::config::UsageError;
use crate::output::{self, Format};

/// The document of `--format json` where the tenant was not named.
#[derive(Debug, Serialize)]
struct Everything {
    found: Vec<Story>,
    /// True if all tenants were searched.
    is_complete: bool,
}

/// Refuses words that can be neither a key nor a record.
pub(super) fn check(flags: &ShowFlags) -> Result<(), UsageError> {
    Wanted::read(&flags.words).map(drop).map_err(UsageError::new)
}

pub(super) async fn run(
    store: &dyn Store,
    flags: &ShowFlags,
    format: Format,
    known: Option<Known>,
) -> anyhow::Result<Exit> {
    match Wanted::read(&flags.words).map_err(anyhow::Error::msg)? {
        Wanted::Exactly(id) => exactly(store, id, flags, format, known).await,
        Wanted::Anywhere { id, key } => {
            let search = find::anywhere(store, id, key.as_ref()).await?;
            everything(store, search, flags, format, known).await
        }
    }
}

async fn exactly(
    store: &dyn Store,
    id: RecordId,
    flags: &ShowFlags,
    format: Format,
    known: Option<Known>,
) -> anyhow::Result<Exit> {
    let found = store.get(id).await?;
    let story = Story::of(store, id, found.as_ref(), flags.body, known).await?;
    match format {
        Format::Json => output::document(&story)?,
        Format::Table => output::data(&story.for_people())?,
    }
    if found.is_none() {
        output::note(absence(store, id).await);
        return Ok(Exit::Absent);
    }
    Ok(Exit::Done)
}

async fn everything(
    store: &dyn Store,
    search: Search,
    flags: &ShowFlags,
    format: Format,
    known: Option<Known>,
) -> anyhow::Result<Exit> {
    let Search { found, is_complete } = search;
    let mut stories = Vec::with_capacity(found.len());
    for found in &found {
        let (id, found) = (found.record.id, Some(found));
        stories.push(Story::of(store, id, found, flags.body, known).await?);
    }
    match format {
        Format::Json => output::document(&Everything { found: stories, is_complete })?,
        Format::Table => {
            let told: Vec<String> = stories.iter().map(Story::for_people).collect();
            output::data(&told.join("\n"))?;
        }
    }
    if !is_complete {
        output::note("there are too many records to look up every tenant; name the tenant");
    }
    if found.is_empty() {
        output::note("no record of any tenant has this id or key");
        return Ok(Exit::Absent);
    }
    Ok(Exit::Done)
}

/// Explains why a key may have no record: it is free, or the store has lost history.
async fn absence(store: &dyn Store, id: RecordId) -> &'static str {
    match store.check_history(id).await {
        Err(error) if error.kind() == StoreErrorKind::HistoryLost => {
            "nothing stands under this key, but the store has lost history: it may have been used; see \
             `firstwrite doctor`"
        }
        Ok(()) | Err(_) => {
            "nothing stands under this key: it was never used, was released, or expired"
        }
    }
}
