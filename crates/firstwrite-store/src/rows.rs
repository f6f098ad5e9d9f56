//! Rows, read the same way from each SQL store, and those of messages, which have the same columns in each.

use firstwrite_core::documents::{Document, DocumentContent, DocumentName, Edition};
use firstwrite_core::encoding::{as_i64, decode_answers};
use firstwrite_core::outbox::pending::{Parts, Pending};
use firstwrite_core::outbox::{
    Among, DestinationView, MessageContent, MessageNumber, MessageState, MessageView, PastDelivery,
    PastEnding, Receipt, Scanned, Standing,
};
use firstwrite_core::{
    AuditEntry, Audited, ClearedLoss, Fence, HistoryLoss, RecordId, StoreError, StoreErrorKind,
    Tenant, Timestamp,
};

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
            $crate::rows::pending_columns!()
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

/// The table of the messages of a scan, and the condition that selects them before that on their numbers. `wanted`
/// is the parameter with the record or the key, as SQL.
pub(crate) fn source(among: &Among, wanted: &str) -> (&'static str, String) {
    match among {
        Among::Everything => ("firstwrite_messages", String::new()),
        Among::Pending => ("firstwrite_pending", String::new()),
        // Said twice for SQLite, which takes an index of a part of the table by a condition of its own.
        Among::Unknown => ("firstwrite_pending", "state = 2 AND state >= 2 AND".to_owned()),
        Among::Dead => ("firstwrite_pending", "state = 3 AND state >= 2 AND".to_owned()),
        Among::Record(_) => ("firstwrite_messages", format!("id = {wanted} AND")),
        Among::Key(_) => ("firstwrite_messages", format!("derived_key = {wanted} AND")),
    }
}

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

    fn bytes(&self, index: usize) -> Result<&[u8], StoreError> {
        self.bytes_or_null(index)?.ok_or_else(|| corrupt("bytes are missing"))
    }

    fn text(&self, index: usize) -> Result<&str, StoreError> {
        self.text_or_null(index)?.ok_or_else(|| corrupt("text is missing"))
    }

    fn owned_text(&self, index: usize) -> Result<String, StoreError> {
        self.text(index).map(str::to_owned)
    }

    fn owned_text_or_null(&self, index: usize) -> Result<Option<String>, StoreError> {
        Ok(self.text_or_null(index)?.map(str::to_owned))
    }

    fn instant(&self, index: usize) -> Result<Timestamp, StoreError> {
        self.instant_or_null(index)?.ok_or_else(|| corrupt("a time is missing"))
    }

    fn instant_or_null(&self, index: usize) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.integer_or_null(index)?.map(Timestamp::from_millis))
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
        let id = self.bytes(index)?.try_into().map(RecordId::from_bytes);
        id.map_err(|_length| corrupt("a record id has 16 bytes"))
    }
}

fn corrupt(what: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Corrupt, "reading a row").caused_by(what)
}

/// Reads the row of a message that is not settled, from column `first` on.
pub(crate) fn pending(row: &impl Columns, first: usize) -> Result<Pending, StoreError> {
    let state = pending_state(row.integer(first + 4)?);
    let standing = Standing {
        state: state.ok_or_else(|| corrupt("an unknown state of a message"))?,
        fence: Some(row.fence(first + 6)?).filter(|fence| fence.as_u64() != 0),
        claimed_at: row.instant_or_null(first + 7)?,
        delivery_count: row.count(first + 8)?,
        lapse_count: row.count(first + 9)?,
        maybe_sent_at: row.instant_or_null(first + 10)?,
        ..Standing::new(Timestamp::EPOCH)
    };
    let pending = Pending {
        number: MessageNumber(row.integer(first)?),
        id: row.record(first + 1)?,
        destination: row.owned_text(first + 2)?,
        ordering_key: row.owned_text_or_null(first + 3)?,
        standing,
        has_time: true,
        status: row.status(first + 11)?,
        problem: row.owned_text_or_null(first + 12)?,
    };
    Ok(pending.due(row.instant_or_null(first + 5)?))
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
    let provider_id = row.owned_text_or_null(9)?;
    let view = MessageView {
        number: MessageNumber(row.integer(0)?),
        record: row.record(1)?,
        tenant: row.tenant(2)?,
        derived_key: row.owned_text(3)?,
        destination: row.owned_text(4)?,
        ordering_key: row.owned_text_or_null(5)?,
        created_at: row.instant(6)?,
        state: settled_state(row.text_or_null(11)?),
        fence: row.fence(10)?,
        due_at: None,
        delivery_count: row.count(13)?,
        maybe_sent_at: None,
        handled_at: row.instant_or_null(12)?,
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
    let answers = row.bytes_or_null(first + 2)?.map(decode_answers).transpose()?.map(Box::new);
    let payload = payload.to_vec().into();
    Ok(Some(MessageContent { content_type: row.owned_text(first)?, payload, answers }))
}

/// Reads what a claim needs beyond the pending row.
pub(crate) fn parts(row: &impl Columns, receipt: Option<Receipt>) -> Result<Parts, StoreError> {
    Ok(Parts {
        tenant: row.tenant(0)?,
        derived_key: row.owned_text(1)?,
        created_at: row.instant(2)?,
        content: content(row, 3)?.ok_or_else(|| corrupt("a payload is missing"))?,
        receipt,
    })
}

/// Reads a row of a history.
pub(crate) fn past(row: &impl Columns) -> Result<PastDelivery, StoreError> {
    Ok(PastDelivery {
        at: row.instant(0)?,
        fence: row.fence(1)?,
        ending: row.owned_text(2)?,
        status: row.status(3)?,
        detail: row.owned_text(4)?,
        provider_id: row.owned_text_or_null(5)?,
    })
}

/// Reads an audit entry, from column `first` on: its time, actor, action and reason.
pub(crate) fn audited(row: &impl Columns, first: usize) -> Result<Audited, StoreError> {
    let at = row.instant(first)?;
    let (actor, action) = (row.owned_text(first + 1)?, row.owned_text(first + 2)?);
    Ok(Audited { at, entry: AuditEntry { actor, action, reason: row.owned_text(first + 3)? } })
}

/// Reads a destination: its name, pause, opening, counts, and the time since when a message is due.
pub(crate) fn destination(row: &impl Columns) -> Result<DestinationView, StoreError> {
    let paused = row.instant_or_null(1)?.map(|_at| audited(row, 1)).transpose()?;
    Ok(DestinationView {
        name: row.owned_text(0)?,
        paused,
        open_until: row.instant_or_null(5)?,
        open_cause: row.owned_text_or_null(6)?,
        opening_count: row.count(7)?,
        open_count: row.integer(8)?,
        unknown_count: row.integer(9)?,
        dead_count: row.integer(10)?,
        delivered_count: row.integer(11)?,
        oldest_due_at: row.instant_or_null(12)?,
    })
}

/// Reads a document: its name, number, version, content and expiry.
pub(crate) fn document(row: &impl Columns) -> Result<Document, StoreError> {
    let name = row.bytes(0)?.try_into().map(DocumentName);
    Ok(Document {
        name: name.map_err(|_length| corrupt("a document's name has 32 bytes"))?,
        edition: Edition { number: row.integer(1)?, version: row.integer(2)? },
        content: DocumentContent {
            bytes: row.bytes(3)?.to_vec(),
            expires_at: row.instant_or_null(4)?,
        },
    })
}

/// Reads a history loss: when it was noticed, its detail, and when, by whom and why it was cleared.
pub(crate) fn history_loss(row: &impl Columns) -> Result<HistoryLoss, StoreError> {
    let cleared = match row.instant_or_null(2)? {
        Some(at) => Some(ClearedLoss::new(at, row.owned_text(3)?, row.owned_text(4)?)),
        None => None,
    };
    Ok(HistoryLoss::new(row.instant(0)?, row.owned_text(1)?, cleared))
}

/// Milliseconds for which a message in doubt rests after its last claim, for the statement that releases one: see
/// [`firstwrite_core::outbox::rested_at`].
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn rest_millis() -> i64 {
    as_i64(firstwrite_core::outbox::REST_AFTER_LOSS.as_millis())
}

/// Goes on without a message that cannot be read. Any other error ends the step, as `ends` says it.
pub(crate) fn skip<E>(
    number: i64,
    error: StoreError,
    ends: impl FnOnce(StoreError) -> E,
) -> Result<(), E> {
    if error.kind() != StoreErrorKind::Corrupt {
        return Err(ends(error));
    }
    tracing::warn!(message = number, %error, "a message cannot be read");
    Ok(())
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
