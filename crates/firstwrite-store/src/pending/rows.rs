//! Rows of messages, which SQLite and MySQL keep in the same columns.

use firstwrite_core::outbox::{
    DestinationView, MessageContent, MessageNumber, MessageState, MessageView, PastDelivery,
    PastEnding, Receipt, Scanned,
};
use firstwrite_core::{
    AuditEntry, Audited, Fence, RecordId, StoreError, StoreErrorKind, Tenant, Timestamp,
};

use super::{Parts, Pending};
use crate::encoding::{Unreadable, decode_answers};

/// The columns that [`pending`] reads, of the table by the name `p`.
macro_rules! pending_columns {
    () => {
        "p.message, p.id, p.destination, p.ordering_key, p.state, p.due_at, p.fence, p.claimed_at, \
         p.delivery_count, p.lapse_count, p.maybe_sent_at, p.status, p.problem"
    };
}
pub(crate) use pending_columns;

/// The columns that [`scanned`] reads before those of the content: of a message, of its history, and of its
/// pending row.
macro_rules! view_columns {
    () => {
        concat!(
            "m.message, m.id, m.tenant, m.derived_key, m.destination, m.ordering_key, m.created_at, \
             LENGTH(m.payload), a.fence, a.provider_id, COALESCE(l.fence, 0), l.ending, l.at, \
             (SELECT COUNT(*) FROM firstwrite_deliveries d \
              WHERE d.message = m.message AND d.ending <> 'dropped'), ",
            $crate::pending::rows::pending_columns!()
        )
    };
}
pub(crate) use view_columns;

/// Joins the messages in `s` with their pending rows and histories. The last history row says how a message
/// ended that is no longer pending.
macro_rules! view_joins {
    () => {
        " JOIN firstwrite_messages m ON m.message = s.message \
         LEFT JOIN firstwrite_pending p ON p.message = m.message \
         LEFT JOIN firstwrite_deliveries l ON l.message = m.message AND l.fence = \
             (SELECT MAX(d.fence) FROM firstwrite_deliveries d WHERE d.message = m.message) \
         LEFT JOIN firstwrite_deliveries a ON a.message = m.message AND a.fence = \
             (SELECT MIN(d.fence) FROM firstwrite_deliveries d \
              WHERE d.message = m.message AND d.ending = 'delivered')"
    };
}
pub(crate) use view_joins;

/// The columns that [`past`] reads.
macro_rules! past_columns {
    () => {
        "at, fence, ending, status, detail, provider_id"
    };
}
pub(crate) use past_columns;

/// The columns that [`parts`] reads.
macro_rules! parts_columns {
    () => {
        "tenant, derived_key, created_at, content_type, payload, answers"
    };
}
pub(crate) use parts_columns;

const PENDING_FROM: usize = 14;
const CONTENT_FROM: usize = PENDING_FROM + 13;

/// A row, as a driver gives it.
pub(crate) trait Columns {
    fn integer_or_null(&self, index: usize) -> Result<Option<i64>, StoreError>;

    fn bytes_or_null(&self, index: usize) -> Result<Option<&[u8]>, StoreError>;

    fn text_or_null(&self, index: usize) -> Result<Option<&str>, StoreError>;

    fn tenant(&self, index: usize) -> Result<Tenant, StoreError>;

    fn integer(&self, index: usize) -> Result<i64, StoreError> {
        self.integer_or_null(index)?.ok_or_else(|| corrupt("a number is missing"))
    }

    fn instant(&self, index: usize) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.integer_or_null(index)?.map(Timestamp::from_millis))
    }

    fn words(&self, index: usize) -> Result<String, StoreError> {
        self.words_or_null(index)?.ok_or_else(|| corrupt("a text is missing"))
    }

    fn words_or_null(&self, index: usize) -> Result<Option<String>, StoreError> {
        Ok(self.text_or_null(index)?.map(str::to_owned))
    }

    fn fence(&self, index: usize) -> Result<Fence, StoreError> {
        self.integer(index).map(|number| Fence::from_u64(number.cast_unsigned()))
    }

    fn count(&self, index: usize) -> Result<u32, StoreError> {
        u32::try_from(self.integer(index)?).map_err(|_range| corrupt("a count out of range"))
    }

    fn status(&self, index: usize) -> Result<Option<u16>, StoreError> {
        let status = self.integer_or_null(index)?.map(u16::try_from).transpose();
        status.map_err(|_range| corrupt("a status has at most five digits"))
    }

    fn record(&self, index: usize) -> Result<RecordId, StoreError> {
        let id = self.bytes_or_null(index)?.and_then(|bytes| bytes.try_into().ok());
        id.map(RecordId::from_bytes).ok_or_else(|| corrupt("a record id has 16 bytes"))
    }
}

fn corrupt(what: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Corrupt, "reading a message").caused_by(what)
}

/// Reads the row of a message that is not settled, from column `first` on.
pub(crate) fn pending(row: &impl Columns, first: usize) -> Result<Pending, StoreError> {
    Ok(Pending {
        number: MessageNumber(row.integer(first)?),
        id: row.record(first + 1)?,
        destination: row.words(first + 2)?,
        ordering_key: row.words_or_null(first + 3)?,
        state: pending_state(row.integer(first + 4)?)
            .ok_or_else(|| corrupt("an unknown state of a message"))?,
        due_at: row.instant(first + 5)?,
        fence: row.fence(first + 6)?,
        claimed_at: row.instant(first + 7)?,
        delivery_count: row.count(first + 8)?,
        lapse_count: row.count(first + 9)?,
        maybe_sent_at: row.instant(first + 10)?,
        status: row.status(first + 11)?,
        problem: row.words_or_null(first + 12)?,
    })
}

/// Reads a message, and its content if there is one in the row. The error names the message, so that an operator
/// can take it out.
pub(crate) fn scanned(row: &impl Columns) -> Result<Scanned, StoreError> {
    let number = row.integer(0)?;
    read_scanned(row).map_err(|error| {
        let cause = format!("message {number} cannot be read: {error}");
        StoreError::definite(error.kind(), "reading messages").caused_by(cause)
    })
}

fn read_scanned(row: &impl Columns) -> Result<Scanned, StoreError> {
    let provider_id = row.words_or_null(9)?;
    let view = MessageView {
        number: MessageNumber(row.integer(0)?),
        record: row.record(1)?,
        tenant: row.tenant(2)?,
        derived_key: row.words(3)?,
        destination: row.words(4)?,
        ordering_key: row.words_or_null(5)?,
        created_at: row.instant(6)?.ok_or_else(|| corrupt("a time is missing"))?,
        state: settled_state(row.text_or_null(11)?),
        fence: row.fence(10)?,
        due_at: None,
        delivery_count: row.count(13)?,
        maybe_sent_at: None,
        handled_at: row.instant(12)?,
        status: None,
        problem: None,
        receipt: row.integer_or_null(8)?.map(|_fence| Receipt { provider_id }),
        payload_bytes: usize::try_from(row.integer(7)?).unwrap_or_default(),
    };
    let view = match row.integer_or_null(PENDING_FROM)? {
        Some(_number) => pending(row, PENDING_FROM)?.shown_in(view),
        None => view,
    };
    Ok(Scanned { view, content: content(row, CONTENT_FROM)? })
}

fn content(row: &impl Columns, first: usize) -> Result<Option<MessageContent>, StoreError> {
    let Some(payload) = row.bytes_or_null(first + 1)? else { return Ok(None) };
    let answers = row.bytes_or_null(first + 2)?.map(decode_answers).transpose();
    let answers = answers.map_err(|Unreadable(what)| corrupt(what))?.map(Box::new);
    let payload = payload.to_vec().into();
    Ok(Some(MessageContent { content_type: row.words(first)?, payload, answers }))
}

/// Reads what a claim needs beyond the pending row.
pub(crate) fn parts(row: &impl Columns, receipt: Option<Receipt>) -> Result<Parts, StoreError> {
    Ok(Parts {
        tenant: row.tenant(0)?,
        derived_key: row.words(1)?,
        created_at: row.instant(2)?.ok_or_else(|| corrupt("a time is missing"))?,
        content: content(row, 3)?.ok_or_else(|| corrupt("a payload is missing"))?,
        receipt,
    })
}

/// Reads a row of a history.
pub(crate) fn past(row: &impl Columns) -> Result<PastDelivery, StoreError> {
    Ok(PastDelivery {
        at: row.instant(0)?.ok_or_else(|| corrupt("a time is missing"))?,
        fence: row.fence(1)?,
        ending: row.words(2)?,
        status: row.status(3)?,
        detail: row.words(4)?,
        provider_id: row.words_or_null(5)?,
    })
}

/// Reads a destination: its name, pause, opening, counts, and the time since when a message is due.
pub(crate) fn destination(row: &impl Columns) -> Result<DestinationView, StoreError> {
    let paused = match row.instant(1)? {
        None => None,
        Some(at) => {
            let (actor, action) = (row.words(2)?, row.words(3)?);
            Some(Audited { at, entry: AuditEntry { actor, action, reason: row.words(4)? } })
        }
    };
    Ok(DestinationView {
        name: row.words(0)?,
        paused,
        open_until: row.instant(5)?,
        open_cause: row.words_or_null(6)?,
        opening_count: row.count(7)?,
        open_count: row.integer(8)?,
        unknown_count: row.integer(9)?,
        dead_count: row.integer(10)?,
        delivered_count: row.integer(11)?,
        oldest_due_at: row.instant(12)?,
    })
}

/// Milliseconds for which a message in doubt rests after its last claim, for the statement that releases one: see
/// [`firstwrite_core::outbox::rested_at`].
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn rest_millis() -> i64 {
    i64::try_from(firstwrite_core::outbox::REST_AFTER_LOSS.as_millis()).unwrap_or(i64::MAX)
}

/// The number of a state that is not final.
pub(crate) fn state_number(state: MessageState) -> i64 {
    match state {
        MessageState::Waiting => 0,
        MessageState::Sending => 1,
        MessageState::Unknown => 2,
        MessageState::Dead => 3,
        MessageState::Delivered => 4,
        MessageState::Refused => 5,
        MessageState::Dropped => 6,
    }
}

fn pending_state(number: i64) -> Option<MessageState> {
    let state = MessageState::ALL.into_iter().find(|state| state_number(*state) == number);
    state.filter(|state| !state.is_final())
}

/// The state of a settled message, from the ending with which its history ends.
fn settled_state(ending: Option<&str>) -> MessageState {
    match ending {
        Some(ending) if ending == PastEnding::Delivered.as_str() => MessageState::Delivered,
        Some(ending) if ending == PastEnding::Refused.as_str() => MessageState::Refused,
        _ => MessageState::Dropped,
    }
}
