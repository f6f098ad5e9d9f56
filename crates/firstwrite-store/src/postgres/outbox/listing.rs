//! Looking at messages: bounded scans, and everything about one.

use deadpool_postgres::Pool;
use firstwrite_core::outbox::{
    Among, Answers, MessageContent, MessageNumber, MessageStory, MessageView, PastDelivery,
    Receipt, Scan, ScanPage, Scanned,
};
use firstwrite_core::{Audited, Fence, StoreError, Tenant};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::parts::{DEAD, UNKNOWN, ending_word, number_of, state_of, unreadable};
use super::snapshot;
use crate::encoding::decode_answers;
use crate::postgres::Shared;
use crate::postgres::columns::{At, Id};
use crate::postgres::driver_error::corrupt;
use crate::postgres::listing::audited;
use crate::postgres::rows::column;

/// See [`firstwrite_core::outbox::Outbox::scan`].
pub(super) async fn scan(
    shared: &Shared,
    pool: &Pool,
    scan: &Scan,
) -> Result<ScanPage, StoreError> {
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
    let (rows, now) = snapshot(shared, pool, "listing messages", async |link, now| {
        Ok((link.query(statement, &given).await?, now))
    })
    .await?;
    let messages = rows.iter().map(scanned).collect::<Result<Vec<_>, _>>()?;
    Ok(ScanPage::new(messages, scan, now))
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn message(
    shared: &Shared,
    pool: &Pool,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    snapshot(shared, pool, "reading a message", async |link, now| {
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
    })
    .await
}

fn scanned(row: &Row) -> Result<Scanned, StoreError> {
    let at = |index| column::<Option<At>>(row, index).map(|at| at.and_then(At::instant));
    let has_arrived: bool = column(row, 14)?;
    let provider_id: Option<String> = column(row, 15)?;
    let view = MessageView {
        number: MessageNumber(column(row, 0)?),
        record: column::<Id>(row, 1)?.0,
        tenant: Tenant::new(column(row, 2)?)
            .map_err(|_not_a_tenant| corrupt("a name that cannot be a tenant's"))?,
        derived_key: column(row, 3)?,
        destination: column(row, 4)?,
        ordering_key: column(row, 5)?,
        created_at: at(6)?.ok_or_else(|| corrupt("an instant is missing"))?,
        state: state_of(column(row, 7)?)?,
        fence: Fence::from_u64(column::<i64>(row, 8)?.cast_unsigned()),
        due_at: at(9)?,
        delivery_count: number_of(column(row, 10)?),
        maybe_sent_at: at(11)?,
        handled_at: at(17)?,
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
    let at = column::<At>(row, 0)?.instant();
    Ok(PastDelivery {
        at: at.ok_or_else(|| corrupt("an instant is missing"))?,
        fence: Fence::from_u64(column::<i64>(row, 1)?.cast_unsigned()),
        ending: ending_word(column(row, 2)?)?.to_owned(),
        status: status(row, 3)?,
        detail: column(row, 4)?,
        provider_id: column(row, 5)?,
    })
}

pub(super) fn status(row: &Row, index: usize) -> Result<Option<u16>, StoreError> {
    Ok(column::<Option<i32>>(row, index)?.and_then(|status| u16::try_from(status).ok()))
}
