//! Messages with their payloads, for comparing with what a destination says it did.

use std::time::Duration;

use firstwrite_core::outbox::{MessageNumber, Written, WrittenPage, WrittenQuery};
use firstwrite_core::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::driver_error::definite;
use super::super::readers::View;
use super::super::rows::{blob, text};
use super::claim::answers;
use super::listing::{JOINED, LOOKED_AT_MAX, PENDING_FROM, SELECT, view};
use super::pending::{COLUMNS, is_null, optional_time};

const DOING: &str = "reading messages";

/// Numbers grow with the time of writing, unless the host's clock was set back between two lives of the
/// store. By more than this it is not.
const SET_BACK_MAX: Duration = Duration::from_hours(24);

/// Index of the first column after those of a view.
const WRITTEN_FROM: usize = PENDING_FROM + 13;
/// Index of the column with the time of the last claim, in the pending row.
const CLAIMED_AT: usize = PENDING_FROM + 7;

impl View {
    /// See [`firstwrite_core::outbox::Outbox::written`].
    pub(super) fn written(&self, query: &WrittenQuery) -> Result<WrittenPage, StoreError> {
        let failed = definite(DOING);
        let now = self.now();
        let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
        let after = self.start(query).map_err(&failed)?;
        let source = "SELECT message FROM firstwrite_messages WHERE message > ?1 ORDER BY message";
        let sql = format!(
            "SELECT {SELECT}, {COLUMNS}, m.payload, m.answers,
                    (SELECT max(d.at) FROM firstwrite_deliveries d
                     WHERE d.message = m.message AND d.ending IN ('delivered', 'refused', 'dropped'))
             FROM ({source} LIMIT ?2) s {JOINED}
             WHERE m.destination = ?3 AND m.created_at >= ?4 AND m.created_at < ?5
             ORDER BY m.message LIMIT ?6"
        );
        let mut select = self.connection.prepare_cached(&sql).map_err(&failed)?;
        let row_max = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let mut rows = select
            .query(params![
                after,
                LOOKED_AT_MAX,
                query.destination,
                query.from.as_millis(),
                query.until.as_millis(),
                row_max,
            ])
            .map_err(&failed)?;
        let mut page = WrittenPage { messages: Vec::new(), next: None, now };
        let mut bytes = 0;
        while let Some(row) = rows.next().map_err(&failed)? {
            if page.messages.len() == limit || bytes > WrittenQuery::PAGE_BYTES_MAX {
                page.next = page.messages.last().map(|last| last.view.number);
                return Ok(page);
            }
            let written = self.written_row(row)?;
            bytes += written.payload.len();
            page.messages.push(written);
        }
        page.next = self.looked_at_last(after, query).map_err(&failed)?;
        Ok(page)
    }

    fn written_row(&self, row: &Row<'_>) -> Result<Written, StoreError> {
        let is_settled = is_null(row, PENDING_FROM)?;
        let handled_at = if is_settled { WRITTEN_FROM + 2 } else { CLAIMED_AT };
        Ok(Written {
            view: view(&self.connection, &self.dictionary, row)?,
            content_type: text(row, 8)?.to_owned(),
            payload: blob(row, WRITTEN_FROM)?.to_vec().into(),
            answers: answers(row, WRITTEN_FROM + 1)?,
            handled_at: optional_time(row, handled_at)?,
        })
    }

    /// The number after which to begin. No message before it is meant.
    fn start(&self, query: &WrittenQuery) -> rusqlite::Result<i64> {
        if let Some(after) = query.after {
            return Ok(after.0);
        }
        let set_back = i64::try_from(SET_BACK_MAX.as_millis()).unwrap_or(i64::MAX);
        let from = Timestamp::from_millis(query.from.as_millis().saturating_sub(set_back));
        first_since(&self.connection, from).map(|first| first.saturating_sub(1))
    }

    /// The last message that a page after `after` looks at, if there are more behind it that can be meant.
    fn looked_at_last(
        &self,
        after: i64,
        query: &WrittenQuery,
    ) -> rusqlite::Result<Option<MessageNumber>> {
        let sql = "SELECT message, created_at FROM firstwrite_messages
                   WHERE message > ?1 ORDER BY message LIMIT 2 OFFSET ?2";
        let mut select = self.connection.prepare_cached(sql)?;
        let rows = select
            .query_map(params![after, LOOKED_AT_MAX - 1], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
        let end = query.until.plus(SET_BACK_MAX).as_millis();
        Ok(match rows[..] {
            [(last, _), (_, behind)] if behind < end => Some(MessageNumber(last)),
            _ => None,
        })
    }
}

/// The number of the first message that was written at `from` or later, by halving: times are not
/// indexed, which every message would have to pay for.
fn first_since(connection: &Connection, from: Timestamp) -> rusqlite::Result<i64> {
    let bounds = "SELECT coalesce(min(message), 0), coalesce(max(message), 0)
                  FROM firstwrite_messages";
    let (mut low, mut high): (i64, i64) =
        connection.prepare_cached(bounds)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    high = high.saturating_add(1);
    let probe = "SELECT created_at FROM firstwrite_messages
                 WHERE message >= ?1 ORDER BY message LIMIT 1";
    let mut probe = connection.prepare_cached(probe)?;
    while low < high {
        let middle = low + (high - low) / 2;
        let created_at: Option<i64> = probe.query_row([middle], |row| row.get(0)).optional()?;
        if created_at.is_some_and(|created_at| created_at < from.as_millis()) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
