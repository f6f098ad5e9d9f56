//! Reading findings out of rows.

use firstwrite_core::findings::{Closed, Closing, Finding, FindingNumber, NewFinding, Run};
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{FindingKind, StoreError, Timestamp};
use tokio_postgres::Row;

use crate::postgres::columns::{At, Id};
use crate::postgres::fault::corrupt;
use crate::postgres::rows::column;

/// Reads a row of `SELECT`.
pub(super) fn finding(row: &Row) -> Result<Finding, StoreError> {
    let found = NewFinding {
        kind: FindingKind::from_word(column(row, 2)?)
            .ok_or_else(|| corrupt("an unknown kind of finding"))?,
        subject: column(row, 3)?,
        detail: column(row, 4)?,
        record: column::<Option<Id>>(row, 5)?.map(|id| id.0),
        message: column::<Option<i64>>(row, 6)?.map(MessageNumber),
        provider_id: column(row, 7)?,
    };
    let closed = match column::<Option<At>>(row, 12)?.and_then(At::instant) {
        Some(at) => {
            let closing = Closing::from_stored(column(row, 14)?, column(row, 15)?);
            let closing = closing.ok_or_else(|| corrupt("an unknown way to close a finding"))?;
            Some(Closed { at, by: column(row, 13)?, closing })
        }
        None => None,
    };
    Ok(Finding {
        number: FindingNumber(column(row, 0)?),
        source: column(row, 1)?,
        found,
        first_seen: instant(row, 8)?,
        last_seen: instant(row, 9)?,
        reopened_count: u32::try_from(column::<i32>(row, 10)?).unwrap_or(0),
        owner: column(row, 11)?,
        closed,
    })
}

/// Reads when a source was last compared.
pub(super) fn run(row: &Row) -> Result<Run, StoreError> {
    Ok(Run { at: instant(row, 0)?, until: instant(row, 1)?, again_from: instant(row, 2)? })
}

fn instant(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    column::<At>(row, index)?.instant().ok_or_else(|| corrupt("an instant is missing"))
}
