//! Looking at messages: pages, previews of how many there are, and the story of one.

use bytes::Bytes;
use firstwrite_core::outbox::{
    Answers, MessageNumber, MessagePage, MessageQuery, MessageState, MessageStory, MessageView,
    Receipt,
};
use firstwrite_core::{RecordId, StoreError, Tenant, Timestamp};
use rusqlite::{Connection, Params, Row, params};

use super::super::dictionary::Dictionary;
use super::super::driver_error::{corrupt, definite};
use super::super::listing::tenant_number;
use super::super::readers::View;
use super::super::rows::{blob, column, integer, text};
use super::claim::answers;
use super::deliveries::past_deliveries;
use super::pending::{COLUMNS, count, fence, is_null, optional_text, pending, state_number};
use crate::pending::settled_state;

/// Maximum number of messages that one page looks at. A page with few matches ends early and says where the next one
/// starts, so that no listing holds a snapshot, and with it the log, for long.
pub(super) const LOOKED_AT_MAX: i64 = 20_000;

/// The payload of a message and its answers.
type Whole = (Bytes, Option<Box<Answers>>);

/// A message, what is pending of it, and what its history says.
pub(super) const SELECT: &str =
    "m.message, m.id, m.tenant, m.derived_key, m.destination, m.ordering_key,
     m.created_at, length(m.payload), m.content_type, a.fence, a.provider_id,
     coalesce(l.fence, 0),
     (SELECT count(*) FROM firstwrite_deliveries d
      WHERE d.message = m.message AND d.ending <> 'dropped'),
     l.ending";

/// Index of the first column of [`COLUMNS`], which follow those of [`SELECT`].
pub(super) const PENDING_FROM: usize = 14;

/// Joins a message with its pending row and its history. The last history row says how a message ended that is no
/// longer pending.
pub(super) const JOINED: &str = "JOIN firstwrite_messages m ON m.message = s.message
     LEFT JOIN firstwrite_pending p ON p.message = m.message
     LEFT JOIN firstwrite_deliveries l ON l.message = m.message
         AND l.fence = (SELECT max(d.fence) FROM firstwrite_deliveries d WHERE d.message = m.message)
     LEFT JOIN firstwrite_deliveries a ON a.message = m.message
         AND a.fence = (SELECT min(d.fence) FROM firstwrite_deliveries d
                        WHERE d.message = m.message AND d.ending = 'delivered')";

/// The parameters are those of [`Filter::parameters`].
const WHERE: &str = "(?3 IS NULL OR m.destination = ?3)
     AND (?4 IS NULL OR ?4 = CASE WHEN p.message IS NOT NULL THEN p.state
                                  WHEN l.ending = 'delivered' THEN 4
                                  WHEN l.ending = 'refused' THEN 5 ELSE 6 END)
     AND (?5 IS NULL OR m.tenant IN (?5, ?6))
     AND (?7 IS NULL OR instr(p.problem, ?7) > 0 OR CAST(p.status AS TEXT) = ?7)
     AND (?8 IS NULL OR m.derived_key = ?8) AND (?10 IS NULL OR m.id = ?10)";

/// Translates a query into SQL.
struct Filter<'q> {
    query: &'q MessageQuery,
    tenant_number: Option<i64>,
}

impl<'q> Filter<'q> {
    fn new(connection: &Connection, query: &'q MessageQuery) -> rusqlite::Result<Self> {
        let tenant = query.tenant.as_ref().map(Tenant::as_str);
        Ok(Self { query, tenant_number: tenant_number(connection, tenant)? })
    }

    fn parameters(&self, row_max: usize) -> impl Params {
        let query = self.query;
        (
            query.after.map_or(i64::MIN, |number| number.0),
            LOOKED_AT_MAX,
            query.destination.as_deref(),
            query.state.map(state_number),
            query.tenant.as_ref().map(Tenant::as_str),
            self.tenant_number,
            query.problem.as_deref(),
            query.derived_key.as_deref(),
            i64::try_from(row_max).unwrap_or(i64::MAX),
            query.record.as_ref().map(RecordId::as_bytes),
        )
    }

    /// Which messages to look at, the oldest first: the fewest that hold all that match.
    fn source(&self) -> &'static str {
        // Without an index, which every message would pay for: a person asks this now and then.
        if self.query.derived_key.is_some() {
            return "SELECT message FROM firstwrite_messages
                    WHERE derived_key = ?8 AND message > ?1 ORDER BY message";
        }
        if self.query.record.is_some() {
            return "SELECT message FROM firstwrite_messages
                    WHERE id = ?10 AND message > ?1 ORDER BY message";
        }
        match self.query.state {
            Some(MessageState::Unknown) => {
                "SELECT message FROM firstwrite_pending
                 WHERE state = 2 AND state >= 2 AND message > ?1 ORDER BY message"
            }
            Some(MessageState::Dead) => {
                "SELECT message FROM firstwrite_pending
                 WHERE state = 3 AND state >= 2 AND message > ?1 ORDER BY message"
            }
            Some(MessageState::Waiting | MessageState::Sending) => {
                "SELECT message FROM firstwrite_pending WHERE message > ?1 ORDER BY message"
            }
            Some(MessageState::Delivered | MessageState::Refused | MessageState::Dropped)
            | None => "SELECT message FROM firstwrite_messages WHERE message > ?1 ORDER BY message",
        }
    }
}

impl View {
    /// See [`firstwrite_core::outbox::Outbox::messages`].
    pub(super) fn messages(&self, query: &MessageQuery) -> Result<MessagePage, StoreError> {
        let failed = definite("listing messages");
        let now = self.now();
        let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
        let filter = Filter::new(&self.connection, query).map_err(&failed)?;
        let source = filter.source();
        let sql = format!(
            "SELECT {SELECT}, {COLUMNS} FROM ({source} LIMIT ?2) s {JOINED} WHERE {WHERE}
             ORDER BY m.message LIMIT ?9"
        );
        let mut messages = Vec::new();
        {
            let mut select = self.connection.prepare_cached(&sql).map_err(&failed)?;
            // One more than asked for tells whether there is a next page.
            let given = filter.parameters(limit + 1);
            let mut rows = select.query(given).map_err(&failed)?;
            while let Some(row) = rows.next().map_err(&failed)? {
                messages.push(view(&self.connection, &self.dictionary, row)?);
            }
        }
        let is_full = messages.len() > limit;
        messages.truncate(limit);
        let next = if is_full {
            messages.last().map(|message| message.number)
        } else {
            self.message_looked_at_last(&filter).map_err(&failed)?
        };
        Ok(MessagePage { messages, next, now })
    }

    /// See [`firstwrite_core::outbox::Outbox::message`].
    pub(super) fn message(
        &self,
        number: MessageNumber,
    ) -> Result<Option<MessageStory>, StoreError> {
        let failed = definite("reading a message");
        let now = self.now();
        let sql = format!("SELECT {SELECT}, {COLUMNS} FROM (SELECT ?1 AS message) s {JOINED}");
        let mut select = self.connection.prepare_cached(&sql).map_err(&failed)?;
        let mut rows = select.query([number.0]).map_err(&failed)?;
        let Some(row) = rows.next().map_err(&failed)? else { return Ok(None) };
        let message = view(&self.connection, &self.dictionary, row)?;
        let content_type = text(row, 8)?.to_owned();
        let (payload, answers) = self.whole(number)?;
        let deliveries = past_deliveries(&self.connection, number)?;
        let audits = self.audits(message.record)?;
        Ok(Some(MessageStory { message, content_type, payload, answers, deliveries, audits, now }))
    }

    /// Reads the parts that pages leave out: the payload, and the answers that the record gets in the end.
    fn whole(&self, number: MessageNumber) -> Result<Whole, StoreError> {
        let failed = definite("reading a message");
        let sql = "SELECT payload, answers FROM firstwrite_messages WHERE message = ?1";
        let mut select = self.connection.prepare_cached(sql).map_err(&failed)?;
        let mut rows = select.query([number.0]).map_err(&failed)?;
        let Some(row) = rows.next().map_err(&failed)? else {
            return Err(corrupt("a message that was there is gone"));
        };
        Ok((Bytes::copy_from_slice(blob(row, 0)?), answers(row, 1)?))
    }

    /// The last message that a page of `filter` looks at, if there are more behind it.
    fn message_looked_at_last(
        &self,
        filter: &Filter<'_>,
    ) -> rusqlite::Result<Option<MessageNumber>> {
        // A key or a record has few messages, and no page of them ends early.
        if filter.query.derived_key.is_some() || filter.query.record.is_some() {
            return Ok(None);
        }
        let sql = format!("{} LIMIT 2 OFFSET ?2", filter.source());
        let after = filter.query.after.map_or(i64::MIN, |number| number.0);
        let mut select = self.connection.prepare_cached(&sql)?;
        let numbers = select
            .query_map(params![after, LOOKED_AT_MAX - 1], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        Ok(match numbers[..] {
            [last, _behind] => Some(MessageNumber(last)),
            _ => None,
        })
    }
}

pub(super) fn view(
    connection: &Connection,
    dictionary: &Dictionary,
    row: &Row<'_>,
) -> Result<MessageView, StoreError> {
    let record = blob(row, 1)?.try_into().map(RecordId::from_bytes);
    let has_arrived = !is_null(row, 9)?;
    let receipt =
        if has_arrived { Some(Receipt { provider_id: optional_text(row, 10)? }) } else { None };
    let view = MessageView {
        number: MessageNumber(integer(row, 0)?),
        record: record.map_err(|_length| corrupt("a record id has 16 bytes"))?,
        tenant: dictionary.tenant(connection, column(row, 2)?)?,
        derived_key: text(row, 3)?.to_owned(),
        destination: text(row, 4)?.to_owned(),
        ordering_key: optional_text(row, 5)?,
        created_at: Timestamp::from_millis(integer(row, 6)?),
        state: settled_state(optional_text(row, 13)?.as_deref()),
        fence: fence(row, 11)?,
        due_at: None,
        delivery_count: count(row, 12)?,
        maybe_sent_at: None,
        claimed_at: None,
        status: None,
        problem: None,
        receipt,
        payload_bytes: usize::try_from(integer(row, 7)?).unwrap_or_default(),
    };
    if is_null(row, PENDING_FROM)? {
        return Ok(view);
    }
    let pending = pending(row, PENDING_FROM)?;
    Ok(pending.shown_in(view))
}
