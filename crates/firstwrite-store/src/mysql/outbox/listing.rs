//! Reads messages: bounded scans, and everything about one message.

use std::sync::Arc;

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::{Among, MessageNumber, MessageStory, Scan, ScanPage, Scanned};

use super::super::batch::time_in;
use super::super::driver_error::corrupt;
use super::super::listing::{ask_audits, audits_in};
use super::super::pipeline::{Pipeline, Value};
use super::super::pool::Pool;
use crate::rows::{past, past_columns, scanned, source, view_columns, view_joins};

/// Goes on with the numbers of the messages to look at.
fn ask_source(pipeline: &mut Pipeline, scan: &Scan) {
    let (table, condition) = source(&scan.among, "?");
    let wanted = match &scan.among {
        Among::Record(record) => Some(Value::Bytes(record.as_bytes())),
        Among::Key(key) => Some(Value::Text(key)),
        Among::Everything | Among::Pending | Among::Unknown | Among::Dead => None,
    };
    let bounds = [Value::Int(scan.begin()), Value::Int(as_i64(scan.row_max()))];
    let values: Vec<_> = wanted.into_iter().chain(bounds).collect();
    let sql = format!(
        "SELECT message FROM {table} WHERE {condition} message > ? ORDER BY message LIMIT ?"
    );
    pipeline.write(&sql, &values);
}

/// See [`firstwrite_core::outbox::Outbox::scan`].
pub(super) async fn scan(pool: &Arc<Pool>, scan: &Scan) -> Result<ScanPage, StoreError> {
    let mut pipeline = Pipeline::reading();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        ", m.content_type, CASE m.destination WHEN ? THEN m.payload END, m.answers FROM ("
    );
    let place = pipeline.add(sql, &[Value::from(scan.contents_to.as_deref())]);
    ask_source(&mut pipeline, scan);
    pipeline.write(concat!(") s", view_joins!(), " ORDER BY m.message"), &[]);
    let answers = pool.send("listing messages", &pipeline).await?;
    let messages = answers[place].rows.iter().map(scanned).collect::<Result<Vec<_>, _>>()?;
    Ok(ScanPage::new(messages, scan, time_in(&answers[time])?))
}

/// See [`firstwrite_core::outbox::Outbox::message`].
pub(super) async fn message(
    pool: &Arc<Pool>,
    number: MessageNumber,
) -> Result<Option<MessageStory>, StoreError> {
    const DOING: &str = "reading a message";
    let mut pipeline = Pipeline::reading();
    let time = pipeline.add("SELECT @firstwrite_now", &[]);
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        ", m.content_type, m.payload, m.answers FROM (SELECT CAST(? AS SIGNED) AS message) s",
        view_joins!()
    );
    let place = pipeline.add(sql, &[Value::Int(number.0)]);
    // More than a person reads.
    let sql = concat!(
        "SELECT ",
        past_columns!(),
        " FROM firstwrite_deliveries WHERE message = ? ORDER BY fence DESC LIMIT 100"
    );
    let told = pipeline.add(sql, &[Value::Int(number.0)]);
    let answers = pool.send(DOING, &pipeline).await?;
    let Some(row) = answers[place].rows.first() else { return Ok(None) };
    let Scanned { view: message, content } = scanned(row)?;
    let content = content.ok_or_else(|| corrupt("a message without its payload"))?;
    let told = answers[told].rows.iter().rev().map(past);
    let mut auditing = Pipeline::new();
    let audits = ask_audits(&mut auditing, message.record.as_bytes());
    let audits = audits_in(&pool.send(DOING, &auditing).await?[audits])?;
    let (deliveries, now) = (told.collect::<Result<_, _>>()?, time_in(&answers[time])?);
    Ok(Some(MessageStory { message, content, deliveries, audits, now }))
}
