//! The history of handing-overs: one row for each claim under which something was sent, and one where an
//! operator said how it ended.

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{HistoryRow, MessageNumber, PastDelivery, PastEnding};
use mysql_async::Row;

use super::super::pipeline::{NOW, Pipeline, Value};
use super::super::rows::{fence, instant, owned_text, owned_text_or_null, status};

/// Adds the statement that writes a row, if its message is there; see [`HistoryRow`] for two rows of one fence.
pub(super) fn put(pipeline: &mut Pipeline, row: &HistoryRow) {
    let status = Value::from(row.status.map(i64::from));
    let detail = Value::Text(&row.detail);
    let provider_id = Value::from(row.provider_id.as_deref());
    let number = Value::Int(row.number.0);
    pipeline.add(
        "INSERT INTO firstwrite_deliveries (message, fence, at, ending, status, detail, \
         provider_id) SELECT m.message, ?, ?, ?, ?, ?, ? FROM firstwrite_messages m \
         WHERE m.message = ? ON DUPLICATE KEY UPDATE ",
        &[
            Value::Int(row.fence.as_u64().cast_signed()),
            Value::Sql(NOW),
            Value::Text(row.ending.as_str()),
            status,
            detail,
            provider_id,
            number,
        ],
    );
    if row.ending != PastEnding::Delivered {
        pipeline.write("fence = firstwrite_deliveries.fence", &[]);
        return;
    }
    // From left to right: what it said before is asked until it says something else.
    for (column, value) in [
        ("at", Value::Sql(NOW)),
        ("status", status),
        ("detail", detail),
        ("provider_id", provider_id),
    ] {
        pipeline.write(
            &format!(
                "firstwrite_deliveries.{column} = IF(firstwrite_deliveries.ending = 'delivered', \
                 firstwrite_deliveries.{column}, ?), "
            ),
            &[value],
        );
    }
    pipeline.write("firstwrite_deliveries.ending = 'delivered'", &[]);
}

/// Adds a look at the last deliveries of a message, the latest first: more than a person reads.
pub(super) fn look(pipeline: &mut Pipeline, number: MessageNumber) -> usize {
    pipeline.add(
        "SELECT at, fence, ending, status, detail, provider_id FROM firstwrite_deliveries \
         WHERE message = ? ORDER BY fence DESC LIMIT 100",
        &[Value::Int(number.0)],
    )
}

pub(super) fn past_delivery(row: &Row) -> Result<PastDelivery, StoreError> {
    Ok(PastDelivery {
        at: instant(row, 0)?,
        fence: fence(row, 1)?,
        ending: owned_text(row, 2)?,
        status: status(row, 3)?,
        detail: owned_text(row, 4)?,
        provider_id: owned_text_or_null(row, 5)?,
    })
}
