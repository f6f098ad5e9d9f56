//! Pipelines: several statements in one round trip, with the result of each.
//!
//! Statements are sent as text, joined: the server runs them in turn and stops at the first that fails. So
//! it reaches a `COMMIT` at the end only if everything before it succeeded, no statement has to be
//! prepared, and no support by a pooler is needed. Values are written only as numbers or as hexadecimal
//! digits, so that no value can end its own literal.

use std::fmt::Write as _;
use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::codec::hex;
use firstwrite_core::encoding::as_i64;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::driver_error::{DriverError, corrupt};

/// Statements that are sent together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipeline {
    text: String,
    count: usize,
    /// Index of the `COMMIT`.
    commit: Option<usize>,
}

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Null,
    Int(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    /// The server's time of this pipeline, plus this duration.
    After(Duration),
    /// The server's time of this pipeline, minus this duration.
    Before(Duration),
    /// A piece of SQL of our own.
    Sql(&'static str),
}

/// Result of one statement.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// Number of rows written, without those that pooled the same values already.
    pub(super) affected: u64,
}

/// A pipeline, or a step of several, that did not finish.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) cause: DriverError,
    /// True if it is unknown whether the pipeline's `COMMIT` took effect.
    pub(super) is_unknown: bool,
}

/// The server's time of a pipeline, in milliseconds since 1970.
pub(super) const NOW: &str = "@firstwrite_now";

/// Larger than any instant, and small enough that a sum with smaller values does not overflow.
const INSTANT_MAX: i64 = 100_000_000_000_000;

impl Pipeline {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Makes a pipeline with a READ COMMITTED transaction and its time.
    pub(super) fn transaction() -> Self {
        let mut pipeline = Self::new();
        pipeline.add("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", &[]);
        pipeline.add("START TRANSACTION", &[]);
        pipeline.time();
        pipeline
    }

    /// Reads, at a time.
    pub(super) fn reading() -> Self {
        let mut pipeline = Self::new();
        pipeline.time();
        pipeline
    }

    /// Reads the server's time, to which every later mention of [`NOW`] refers.
    pub(super) fn time(&mut self) {
        self.add("SET @firstwrite_now = (SELECT now FROM firstwrite_clock)", &[]);
    }

    /// Adds a statement; each `?` in it is one of `values`. Returns the place of its answer.
    pub(super) fn add(&mut self, sql: &str, values: &[Value<'_>]) -> usize {
        if self.count > 0 {
            self.text.push_str(";\n");
        }
        self.count += 1;
        self.write(sql, values);
        self.count - 1
    }

    /// Appends to the statement that was added last.
    pub(super) fn write(&mut self, sql: &str, values: &[Value<'_>]) {
        let mut pieces = sql.split('?');
        self.text.push_str(pieces.next().unwrap_or_default());
        let mut values = values.iter();
        for piece in pieces {
            let value = values.next().expect("a statement has as many values as places for them");
            self.put(*value);
            self.text.push_str(piece);
        }
        assert!(values.next().is_none(), "a statement has as many places as values for them");
    }

    /// Appends values to the statement that was added last, between brackets.
    pub(super) fn write_list<'v>(&mut self, values: impl IntoIterator<Item = Value<'v>>) {
        for (place, value) in values.into_iter().enumerate() {
            self.write(if place > 0 { ", ?" } else { "(?" }, &[value]);
        }
        self.write(")", &[]);
    }

    pub(super) fn commit(&mut self) {
        self.commit = Some(self.add("COMMIT", &[]));
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    fn put(&mut self, value: Value<'_>) {
        let text = &mut self.text;
        match value {
            Value::Null => text.push_str("NULL"),
            Value::Int(number) => write!(text, "{number}").expect("a string takes everything"),
            Value::Bytes(bytes) => put_hex(text, bytes),
            Value::Text(words) => {
                text.push_str("_utf8mb4 ");
                put_hex(text, words.as_bytes());
            }
            Value::Before(duration) => {
                let millis = as_i64(duration.as_millis());
                write!(text, "GREATEST({NOW} - {millis}, 0)").expect("a string takes everything");
            }
            Value::After(duration) => {
                let millis = as_i64(duration.as_millis());
                // The end of time stays where it is.
                if millis > i64::MAX - INSTANT_MAX {
                    write!(text, "{}", i64::MAX).expect("a string takes everything");
                } else {
                    write!(text, "{NOW} + {millis}").expect("a string takes everything");
                }
            }
            Value::Sql(sql) => text.push_str(sql),
        }
    }

    /// Sends it and waits for all answers, `limit` at most.
    pub(super) async fn send(
        &self,
        conn: &mut Conn,
        limit: Duration,
    ) -> Result<Vec<Answer>, SendError> {
        let mut answers = Vec::with_capacity(self.count);
        let sending = async {
            let mut result = conn.query_iter(self.text.as_str()).await?;
            while answers.len() < self.count {
                let affected = result.affected_rows();
                let rows = result.collect::<Row>().await?;
                answers.push(Answer { rows, affected });
            }
            Ok(())
        };
        let ended =
            tokio::time::timeout(limit, sending).await.unwrap_or(Err(DriverError::NoAnswer));
        ended.map_err(|error: DriverError| self.send_error(answers.len(), error)).map(|()| answers)
    }

    fn send_error(&self, at: usize, error: DriverError) -> SendError {
        let is_unknown = match self.commit {
            None => false,
            // The server stops at the first failure.
            Some(commit) if error.code().is_some() => at >= commit && !error.undoes_commit(),
            Some(_) => true,
        };
        SendError { cause: error, is_unknown }
    }
}

impl SendError {
    /// Makes the error of a pipeline that was not sent.
    pub(super) fn unsent(cause: DriverError) -> Self {
        Self { cause, is_unknown: false }
    }

    /// Returns true if the server rolled back because of another transaction, so that the same pipeline may
    /// be sent again at once.
    pub(super) fn may_repeat(&self) -> bool {
        self.cause.is_deadlock() && !self.is_unknown
    }

    /// Makes the error of a pipeline that was committed, and whose answer cannot be understood.
    pub(super) fn unread(error: StoreError) -> Self {
        Self { cause: DriverError::Read(error), is_unknown: true }
    }

    /// Converts to the error for a caller.
    pub(super) fn error(&self, doing: &'static str) -> StoreError {
        if self.is_unknown { self.cause.indeterminate(doing) } else { self.cause.definite(doing) }
    }
}

impl Answer {
    /// Returns the only row; `what` says what it means that there is none.
    pub(super) fn row(&self, what: &'static str) -> Result<&Row, StoreError> {
        self.rows.first().ok_or_else(|| corrupt(what))
    }
}

/// The data read is invalid, or the step cannot be done; nothing was written.
impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        Self::unsent(DriverError::Read(error))
    }
}

impl From<SendError> for DriverError {
    fn from(error: SendError) -> Self {
        error.cause
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

fn put_hex(text: &mut String, bytes: &[u8]) {
    text.push_str("x'");
    hex::push(text, bytes);
    text.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_can_end_its_own_literal() {
        let mut pipeline = Pipeline::new();
        let evil = "x'; DROP TABLE firstwrite_records; --";
        pipeline.add("SELECT ?, ?, ?", &[Value::Text(evil), Value::Bytes(b"'"), Value::Int(-1)]);
        assert!(!pipeline.text.contains("DROP"));
        assert!(pipeline.text.ends_with(", x'27', -1"), "{}", pipeline.text);
    }

    #[test]
    fn a_deadline_beyond_the_end_of_time_is_the_end_of_time() {
        let mut pipeline = Pipeline::new();
        pipeline.add("?, ?", &[Value::After(Duration::MAX), Value::After(Duration::from_secs(2))]);
        assert_eq!(pipeline.text, format!("{}, @firstwrite_now + 2000", i64::MAX));
    }

    #[test]
    fn what_fails_before_the_commit_was_not_committed() {
        let mut pipeline = Pipeline::transaction();
        pipeline.commit();
        let said = |code| {
            let (message, state) = (String::new(), String::new());
            let error = mysql_async::ServerError { code, message, state };
            DriverError::Driver(mysql_async::Error::Server(error))
        };
        assert!(!pipeline.send_error(1, said(1317)).is_unknown);
        assert!(pipeline.send_error(3, said(1317)).is_unknown, "interrupted in COMMIT");
        assert!(!pipeline.send_error(3, said(1213)).is_unknown, "a cluster refused the commit");
        assert!(pipeline.send_error(1, DriverError::NoAnswer).is_unknown, "all was sent");
    }
}
