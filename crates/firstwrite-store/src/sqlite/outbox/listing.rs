//! Reads messages: bounded scans, and everything about one message.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::{Among, MessageNumber, MessageStory, Scan, ScanPage, Scanned};
use firstwrite_core::{StoreError, Tenant};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Params, Row, params};

use super::super::dictionary::Dictionary;
use super::super::driver_error::{corrupt, definite};
use super::super::readers::View;
use super::super::rows::{blob, column, integer, text};
use crate::rows::{Columns, past, past_columns, scanned, source, view_columns, view_joins};

/// Maximum number of rows that a message's history returns.
const TOLD_MAX: i64 = 100;

/// A row that is about a message.
pub(in super::super) struct MessageRow<'r> {
    pub(in super::super) row: &'r Row<'r>,
    connection: &'r Connection,
    dictionary: &'r Dictionary,
}

impl<'r> MessageRow<'r> {
    pub(super) fn new(
        row: &'r Row<'r>,
        (connection, dictionary): (&'r Connection, &'r Dictionary),
    ) -> Self {
        Self { row, connection, dictionary }
    }

    fn is_null(&self, index: usize) -> Result<bool, StoreError> {
        column(self.row, index).map(|value| value == ValueRef::Null)
    }
}

impl Columns for MessageRow<'_> {
    fn integer_or_null(&self, index: usize) -> Result<Option<i64>, StoreError> {
        if self.is_null(index)? { Ok(None) } else { integer(self.row, index).map(Some) }
    }

    fn bytes_or_null(&self, index: usize) -> Result<Option<&[u8]>, StoreError> {
        if self.is_null(index)? { Ok(None) } else { blob(self.row, index).map(Some) }
    }

    fn text_or_null(&self, index: usize) -> Result<Option<&str>, StoreError> {
        if self.is_null(index)? { Ok(None) } else { text(self.row, index).map(Some) }
    }

    fn tenant(&self, index: usize) -> Result<Tenant, StoreError> {
        self.dictionary.tenant(self.connection, column(self.row, index)?)
    }
}

impl View {
    /// See [`firstwrite_core::outbox::Outbox::scan`].
    pub(super) fn scan(&self, scan: &Scan) -> Result<ScanPage, StoreError> {
        let now = self.now();
        let (table, condition) = source(&scan.among, "?3");
        let sql = format!(
            "SELECT {}, m.content_type, CASE m.destination WHEN ?4 THEN m.payload END, m.answers
             FROM (SELECT message FROM {table} WHERE {condition} message > ?1
                   ORDER BY message LIMIT ?2) s {} ORDER BY m.message",
            view_columns!(),
            view_joins!()
        );
        let wanted = match &scan.among {
            Among::Record(record) => Value::Blob(record.as_bytes().to_vec()),
            Among::Key(key) => Value::Text(key.clone()),
            Among::Everything | Among::Pending | Among::Unknown | Among::Dead => Value::Null,
        };
        let given = params![scan.begin(), as_i64(scan.row_max()), wanted, scan.contents_to];
        let messages = self.all("listing messages", &sql, given, |row| scanned(row))?;
        Ok(ScanPage::new(messages, scan, now))
    }

    /// See [`firstwrite_core::outbox::Outbox::message`].
    pub(super) fn message(
        &self,
        number: MessageNumber,
    ) -> Result<Option<MessageStory>, StoreError> {
        const DOING: &str = "reading a message";
        let now = self.now();
        let sql = concat!(
            "SELECT ",
            view_columns!(),
            ", m.content_type, m.payload, m.answers FROM (SELECT ?1 AS message) s",
            view_joins!()
        );
        let found = self.all(DOING, sql, [number.0], |row| scanned(row))?.pop();
        let Some(Scanned { view: message, content }) = found else { return Ok(None) };
        let content = content.ok_or_else(|| corrupt("a message without its payload"))?;
        let sql = concat!(
            "SELECT ",
            past_columns!(),
            " FROM firstwrite_deliveries WHERE message = ?1 ORDER BY fence DESC LIMIT ?2"
        );
        let mut deliveries = self.all(DOING, sql, params![number.0, TOLD_MAX], |row| past(row))?;
        deliveries.reverse();
        let audits = self.audits(message.record)?;
        Ok(Some(MessageStory { message, content, deliveries, audits, now }))
    }

    /// Reads every row that `sql` selects.
    pub(in super::super) fn all<T>(
        &self,
        doing: &'static str,
        sql: &str,
        given: impl Params,
        read: impl Fn(&MessageRow<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        select((&self.connection, &self.dictionary), doing, (sql, given), read)
    }
}

/// Reads every row that `sql` selects.
pub(super) fn select<T>(
    (connection, dictionary): (&Connection, &Dictionary),
    doing: &'static str,
    (sql, given): (&str, impl Params),
    read: impl Fn(&MessageRow<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let failed = definite(doing);
    let mut query = connection.prepare_cached(sql).map_err(&failed)?;
    let mut rows = query.query(given).map_err(&failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        all.push(read(&MessageRow { row, connection, dictionary })?);
    }
    Ok(all)
}
