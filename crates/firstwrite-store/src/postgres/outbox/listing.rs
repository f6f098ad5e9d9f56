//! Reads messages: bounded scans, and everything about one message.

use std::sync::Arc;

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::{Among, MessageNumber, MessageStory, Scan, ScanPage, Scanned};
use tokio_postgres::types::ToSql;

use super::parts::{DEAD, UNKNOWN};
use crate::postgres::Shared;
use crate::postgres::columns::Id;
use crate::postgres::driver_error::corrupt;
use crate::postgres::link::Link;
use crate::rows::{audited, past, scanned};

/// See [`firstwrite_core::outbox::Outbox::scan`].
pub(super) async fn scan(shared: &Arc<Shared>, scan: &Scan) -> Result<ScanPage, StoreError> {
    let sql = &shared.sql.outbox;
    let row_max = as_i64(scan.row_max());
    let (id, state): (Id, i16);
    let (statement, wanted): (_, Option<&(dyn ToSql + Sync)>) = match &scan.among {
        Among::Everything => (&sql.scan_log, None),
        Among::Pending => (&sql.scan_pending, None),
        Among::Unknown | Among::Dead => {
            state = if scan.among == Among::Dead { DEAD } else { UNKNOWN };
            (&sql.scan_held, Some(&state))
        }
        Among::Record(record) => {
            id = Id(*record);
            (&sql.scan_record, Some(&id))
        }
        Among::Key(key) => (&sql.scan_key, Some(key)),
    };
    let after = scan.begin();
    let mut given: Vec<&(dyn ToSql + Sync)> = vec![&after, &row_max, &scan.contents_to];
    given.extend(wanted);
    let page = async |link: &Link<'_>, now| {
        let rows = link.query(statement, &given).await?;
        let messages = rows.iter().map(scanned).collect::<Result<Vec<_>, _>>()?;
        Ok(ScanPage::new(messages, scan, now))
    };
    shared.snapshot("listing messages", page).await
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn message(
    shared: &Arc<Shared>,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    let story = async |link: &Link<'_>, now| {
        let sql = &link.sql().outbox;
        let rows = link.query(&sql.message, &[&number.0]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Scanned { view: message, content } = scanned(row)?;
        let content = content.ok_or_else(|| corrupt("a message without its payload"))?;
        let deliveries = link.query(&sql.deliveries, &[&number.0]).await?;
        let audits = link.query(&link.sql().audits, &[&Id(message.record)]).await?;
        let deliveries = deliveries.iter().map(past).collect::<Result<_, _>>()?;
        let audits = audits.iter().map(|row| audited(row, 0)).collect::<Result<_, StoreError>>()?;
        Ok(Some(MessageStory { message, content, deliveries, audits, now }))
    };
    shared.snapshot("reading a message", story).await
}
