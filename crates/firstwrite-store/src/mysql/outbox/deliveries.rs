//! The history of handing-overs: one row for each claim under which something was sent, and one where an
//! operator said how it ended.

use firstwrite_core::outbox::{Delivery, Ending, MessageNumber, PastDelivery};
use firstwrite_core::{Fence, StoreError};
use mysql_async::Row;

use super::super::flight::{Flight, NOW, Value};
use super::super::rows::{fence, instant, owned_text, owned_text_or_null, status};
use super::pending::shortened;

/// What is written in `ending` when a message arrived.
pub(super) const DELIVERED: &str = "delivered";
/// What is written in `ending` when a message will never arrive.
pub(super) const REFUSED: &str = "refused";
/// What is written in `ending` when an operator gave a message up.
pub(super) const DROPPED: &str = "dropped";

/// One row of the history.
pub(super) struct Entry<'a> {
    pub(super) number: MessageNumber,
    pub(super) fence: Fence,
    pub(super) ending: &'static str,
    pub(super) status: Option<u16>,
    pub(super) detail: &'a str,
    pub(super) provider_id: Option<&'a str>,
}

impl<'a> Entry<'a> {
    pub(super) fn of(number: MessageNumber, fence: Fence, delivery: &'a Delivery) -> Self {
        let provider_id = match &delivery.ending {
            Ending::Delivered(receipt) => receipt.provider_id.as_deref(),
            Ending::Refused | Ending::Retry | Ending::Unknown => None,
        };
        Self {
            number,
            fence,
            ending: delivery.ending.as_str(),
            status: delivery.status,
            detail: &delivery.detail,
            provider_id,
        }
    }

    /// Adds the statement that writes it, if its message is there. Of two under one fence the first stands,
    /// but for one that says that the message arrived: that is the truth about the destination, however
    /// late.
    pub(super) fn put(&self, flight: &mut Flight) {
        let status = Value::from(self.status.map(i64::from));
        let detail = Value::Text(shortened(self.detail));
        let provider_id = Value::from(self.provider_id);
        let number = Value::Int(self.number.0);
        flight.add(
            "INSERT INTO firstwrite_deliveries (message, fence, at, ending, status, detail, \
             provider_id) SELECT m.message, ?, ?, ?, ?, ?, ? FROM firstwrite_messages m \
             WHERE m.message = ? ON DUPLICATE KEY UPDATE ",
            &[
                Value::Int(self.fence.as_u64().cast_signed()),
                Value::Sql(NOW),
                Value::Text(self.ending),
                status,
                detail,
                provider_id,
                number,
            ],
        );
        if self.ending != DELIVERED {
            flight.write("fence = firstwrite_deliveries.fence", &[]);
            return;
        }
        // From left to right: what it said before is asked until it says something else.
        for (column, value) in [
            ("at", Value::Sql(NOW)),
            ("status", status),
            ("detail", detail),
            ("provider_id", provider_id),
        ] {
            flight.write(
                &format!(
                    "firstwrite_deliveries.{column} = IF(firstwrite_deliveries.ending = 'delivered', \
                     firstwrite_deliveries.{column}, ?), "
                ),
                &[value],
            );
        }
        flight.write("firstwrite_deliveries.ending = 'delivered'", &[]);
    }
}

/// Adds a look at the last deliveries of a message, the latest first: more than a person reads.
pub(super) fn look(flight: &mut Flight, number: MessageNumber) -> usize {
    flight.add(
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
