//! Maps the server's and the driver's errors to store errors.

use std::error::Error as _;
use std::fmt;

use deadpool_postgres::PoolError;
use firstwrite_core::{BoxError, StoreError, StoreErrorKind};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// An error between the store and the server.
#[derive(Debug)]
pub(super) enum DriverError {
    /// An error reported by the server or the driver.
    Said(Error),
    /// Nothing came back in time, not even the server's own timeout.
    Silence,
    /// The server could not be reached a moment ago and is not tried again yet.
    Away,
    /// An answer was read and is invalid.
    Read(StoreError),
}

/// The kind of error an error is.
fn kind_of(error: &DriverError) -> StoreErrorKind {
    let code = match error {
        DriverError::Said(error) => error.code(),
        DriverError::Silence | DriverError::Away => None,
        DriverError::Read(error) => return error.kind(),
    };
    code.map_or(StoreErrorKind::Unavailable, |code| kind_of_code(code.code()))
}

/// Returns the kind of error for a server's code.
pub(super) fn kind_of_code(code: &str) -> StoreErrorKind {
    if code == SqlState::DISK_FULL.code() || code == SqlState::OUT_OF_MEMORY.code() {
        return StoreErrorKind::Full;
    }
    // By class: connection, transaction state on a standby, rollback, resources, not in its
    // prescribed state (locks), operator's intervention, system.
    match code.get(..2) {
        Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => StoreErrorKind::Unavailable,
        Some("XX") => StoreErrorKind::Corrupt,
        Some(_) | None => StoreErrorKind::Unsupported,
    }
}

/// See [`DriverError::may_be_rival`].
pub(super) fn is_rivals_code(code: &str) -> bool {
    let codes = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    codes.iter().any(|rival| rival.code() == code)
}

/// The error in words. A server's message and code; never its detail, which may hold values.
pub(super) fn text_of(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A failed step of which nothing was committed.
pub(super) fn definite<E: Into<DriverError>>(doing: &'static str) -> impl Fn(E) -> StoreError {
    move |error| error.into().definite(doing)
}

/// Makes the error of a failed step that may or may not have been committed.
pub(super) fn indeterminate<E: Into<DriverError>>(doing: &'static str) -> impl Fn(E) -> StoreError {
    move |error| {
        let error = error.into();
        StoreError::indeterminate(kind_of(&error), doing).caused_by(error.to_string())
    }
}

/// Makes the error of a failed COMMIT. An error after which the session lives on rolled back the
/// transaction. One that ends the session may have come while the commit waited for a standby: then the
/// transaction is committed.
pub(super) fn failed_commit<E: Into<DriverError>>(doing: &'static str) -> impl Fn(E) -> StoreError {
    move |error| {
        let error = error.into();
        if error.is_undone() { definite(doing)(error) } else { indeterminate(doing)(error) }
    }
}

impl DriverError {
    /// The error of a step that certainly was not done.
    pub(super) fn definite(&self, doing: &'static str) -> StoreError {
        StoreError::definite(kind_of(self), doing).caused_by(self.to_string())
    }

    /// Returns true if the server reported that it rolled back, and the session is still alive.
    pub(super) fn is_undone(&self) -> bool {
        match self {
            Self::Said(error) => error.as_db_error().is_some_and(|db| !ends_session(db)),
            Self::Silence | Self::Away | Self::Read(_) => false,
        }
    }

    /// Returns true if the server itself reported the error, whether or not the session survived.
    pub(super) fn is_from_server(&self) -> bool {
        matches!(self, Self::Said(error) if error.as_db_error().is_some())
    }

    /// Returns true if waiting for another transaction's lock took too long.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Said(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// Returns true if a concurrent write may be the cause: a unique key, a serialization failure, a
    /// deadlock, a lock timeout, or a record that has moved.
    pub(super) fn may_be_rival(&self) -> bool {
        match self {
            Self::Said(error) => error.code().is_some_and(|code| is_rivals_code(code.code())),
            Self::Read(error) => error.is_retryable(),
            Self::Silence | Self::Away => false,
        }
    }

    /// Returns true if a statement failed on purpose (it divides by zero to do so).
    pub(super) fn is_division_by_zero(&self) -> bool {
        let code = Some(&SqlState::DIVISION_BY_ZERO);
        matches!(self, Self::Said(error) if error.code() == code)
    }

    /// Returns true if the error only says that an earlier statement of the transaction failed.
    pub(super) fn is_echo(&self) -> bool {
        let echo = Some(&SqlState::IN_FAILED_SQL_TRANSACTION);
        matches!(self, Self::Said(error) if error.code() == echo)
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl From<StoreError> for DriverError {
    fn from(error: StoreError) -> Self {
        Self::Read(error)
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(error) => f.write_str(&text_of(error)),
            Self::Silence => f.write_str("the server does not answer"),
            Self::Away => f.write_str("the server is away"),
            Self::Read(error) => error.fmt(f),
        }
    }
}

/// No connection was to be had, so nothing was sent.
pub(super) fn no_connection(doing: &'static str) -> impl Fn(&PoolError) -> StoreError {
    move |error| {
        let text = match error {
            PoolError::Backend(error) => text_of(error),
            PoolError::Timeout(_) => "too busy: no connection became free in time".to_owned(),
            PoolError::Closed => "the store is closed".to_owned(),
            PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => error.to_string(),
        };
        unavailable(doing, text)
    }
}

/// Returns the error for an invalid row.
pub(super) fn corrupt(what: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Corrupt, "reading a record").caused_by(what)
}

/// Returns the error for an unsupported operation.
pub(super) fn unsupported(doing: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::definite(StoreErrorKind::Unsupported, doing).caused_by(why)
}

/// A step that was not begun.
pub(super) fn unavailable(doing: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, doing).caused_by(why)
}

fn ends_session(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(Severity::Panic | Severity::Fatal) | None => true,
        Some(
            Severity::Error
            | Severity::Warning
            | Severity::Notice
            | Severity::Debug
            | Severity::Info
            | Severity::Log,
        ) => false,
    }
}
