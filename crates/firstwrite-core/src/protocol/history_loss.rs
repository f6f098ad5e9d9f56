//! Records of a store that lost history: what was known of them before the loss proves nothing after it.

use crate::store::{Change, Guard, Query, StateFilter, Swapped};
use crate::{AuditEntry, RecordId, State, Store, StoreError};

use super::sweep_once;

/// Marks every uncertain record as given up now, with an audit entry each, and gives up every reservation whose
/// lease ran out. Returns the number of uncertain records that were marked.
///
/// For a store that lost history, before the loss is cleared: what is missing may have freed a key, used it
/// again, and sent its request a moment before the loss. So the time after which an absence proves something
/// begins anew. If this fails halfway, the loss stays open and it can be done again.
///
/// # Errors
/// Those of the store. The records that were marked before stay marked.
pub async fn mark_given_up_now(store: &dyn Store, by: &AuditEntry) -> Result<usize, StoreError> {
    let mut after: Option<RecordId> = None;
    let mut marked = 0;
    loop {
        let query = Query {
            tenant: None,
            state: Some(StateFilter::Uncertain),
            after,
            limit: Query::LIMIT_MAX,
        };
        let page = store.list(&query).await?;
        for record in page.records {
            let State::Uncertain { .. } = record.state else { continue };
            let guard = Guard::Seen(record.seen());
            // One that moved was settled, and has an end or is used again.
            if let Swapped::Done(_) =
                store.swap(record.id, guard, Change::MARK_UNCERTAIN, Some(by)).await?
            {
                marked += 1;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    while sweep_once(store, Query::LIMIT_MAX).await?.changed() > 0 {}
    Ok(marked)
}
