//! Looking at messages: bounded scans, and everything about one.

use std::sync::Arc;

use firstwrite_core::outbox::{
    Among, Answers, MessageContent, MessageNumber, MessageStory, MessageView, PastDelivery,
    Receipt, Scan, ScanPage, Scanned,
};
use firstwrite_core::{Audited, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::parts::{DEAD, UNKNOWN, ending_word, number_of, state_of, unreadable};
use crate::encoding::decode_answers;
use crate::postgres::Shared;
use crate::postgres::columns::Id;
use crate::postgres::driver_error::corrupt;
use crate::postgres::link::Link;
use crate::postgres::listing::audited;
use crate::postgres::rows::{column, fence, instant, instant_or_null, tenant};

/// See [`firstwrite_core::outbox::Outbox::scan`].
pub(super) async fn scan(shared: &Arc<Shared>, scan: &Scan) -> Result<ScanPage, StoreError> {
    let sql = &shared.sql.outbox;
    let row_max = i64::try_from(scan.row_max()).unwrap_or(i64::MAX);
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
        let audits = audits.iter().map(audited).collect::<Result<Vec<Audited>, StoreError>>()?;
        Ok(Some(MessageStory { message, content, deliveries, audits, now }))
    };
    shared.snapshot("reading a message", story).await
}

fn scanned(row: &Row) -> Result<Scanned, StoreError> {
    let has_arrived: bool = column(row, 14)?;
    let provider_id: Option<String> = column(row, 15)?;
    let view = MessageView {
        number: MessageNumber(column(row, 0)?),
        record: column::<Id>(row, 1)?.0,
        tenant: tenant(row, 2)?,
        derived_key: column(row, 3)?,
        destination: column(row, 4)?,
        ordering_key: column(row, 5)?,
        created_at: instant(row, 6)?,
        state: state_of(column(row, 7)?)?,
        fence: fence(row, 8)?,
        due_at: instant_or_null(row, 9)?,
        delivery_count: number_of(column(row, 10)?),
        maybe_sent_at: instant_or_null(row, 11)?,
        handled_at: instant_or_null(row, 17)?,
        status: status(row, 12)?,
        problem: column(row, 13)?,
        receipt: has_arrived.then_some(Receipt { provider_id }),
        payload_bytes: usize::try_from(column::<i32>(row, 16)?).unwrap_or(0),
    };
    let content = match column::<Option<&[u8]>>(row, 19)? {
        Some(payload) => Some(MessageContent {
            content_type: column(row, 18)?,
            payload: bytes::Bytes::copy_from_slice(payload),
            answers: answers(row, 20)?,
        }),
        None => None,
    };
    Ok(Scanned { view, content })
}

pub(super) fn answers(row: &Row, index: usize) -> Result<Option<Box<Answers>>, StoreError> {
    let answers: Option<&[u8]> = column(row, index)?;
    Ok(answers.map(decode_answers).transpose().map_err(unreadable)?.map(Box::new))
}

fn past(row: &Row) -> Result<PastDelivery, StoreError> {
    Ok(PastDelivery {
        at: instant(row, 0)?,
        fence: fence(row, 1)?,
        ending: ending_word(column(row, 2)?)?.to_owned(),
        status: status(row, 3)?,
        detail: column(row, 4)?,
        provider_id: column(row, 5)?,
    })
}

pub(super) fn status(row: &Row, index: usize) -> Result<Option<u16>, StoreError> {
    Ok(column::<Option<i32>>(row, index)?.and_then(|status| u16::try_from(status).ok()))
}
