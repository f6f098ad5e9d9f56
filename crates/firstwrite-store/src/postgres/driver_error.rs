//! Maps the server's and the drivers' errors to store errors.

use std::error::Error as _;
use std::fmt;

use deadpool_postgres::PoolError;
use firstwrite_core::{StoreError, StoreErrorKind};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

pub(super) use crate::step_error::{corrupt, unavailable, unsupported};

/// An error between the store and the server.
#[derive(Debug)]
pub(super) enum DriverError {
    /// An error reported by the server or a driver.
    Reported {
        /// The server's code; `None` for an error of the driver's own.
        code: Option<SqlState>,
        text: String,
        /// True if the server reported it and the session goes on: the transaction is rolled back.
        is_undone: bool,
    },
    /// Nothing came back in time, not even the server's own timeout.
    Silence,
    /// The server could not be reached a moment ago and is not tried again yet.
    Away,
    /// An answer was read and is invalid.
    Read(StoreError),
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

/// Makes the error of a failed step of which nothing was committed. What was read and is invalid has been
/// named where it was read.
pub(super) fn definite<E: Into<DriverError>>(doing: &'static str) -> impl Fn(E) -> StoreError {
    move |error| match error.into() {
        DriverError::Read(error) => error,
        error @ (DriverError::Reported { .. } | DriverError::Silence | DriverError::Away) => {
            error.definite(doing)
        }
    }
}

/// Makes the error of a failed COMMIT. An error after which the session lives on rolled back the
/// transaction. One that ends the session may have come while the commit waited for a standby: then the
/// transaction is committed.
pub(super) fn failed_commit<E: Into<DriverError>>(doing: &'static str) -> impl Fn(E) -> StoreError {
    move |error| {
        let error = error.into();
        if error.is_undone() {
            return error.definite(doing);
        }
        StoreError::indeterminate(error.kind(), doing).caused_by(error.to_string())
    }
}

impl DriverError {
    /// Returns the error of a step that certainly was not done.
    pub(super) fn definite(&self, doing: &'static str) -> StoreError {
        StoreError::definite(self.kind(), doing).caused_by(self.to_string())
    }

    fn kind(&self) -> StoreErrorKind {
        if let Self::Read(error) = self {
            return error.kind();
        }
        let Some(code) = self.code() else { return StoreErrorKind::Unavailable };
        if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(code) {
            return StoreErrorKind::Full;
        }
        // By class: connection, transaction state on a standby, rollback, resources, not in its
        // prescribed state (locks), operator's intervention, system.
        match code.code().get(..2) {
            Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => StoreErrorKind::Unavailable,
            Some("XX") => StoreErrorKind::Corrupt,
            Some(_) | None => StoreErrorKind::Unsupported,
        }
    }

    /// Returns the server's code, if the server itself reported the error.
    fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Reported { code, .. } => code.as_ref(),
            Self::Silence | Self::Away | Self::Read(_) => None,
        }
    }

    /// Returns true if the server reported that it rolled back, and the session is still alive.
    pub(super) fn is_undone(&self) -> bool {
        matches!(self, Self::Reported { is_undone: true, .. })
    }

    /// Returns true if the server itself reported the error, whether or not the session survived.
    pub(super) fn is_from_server(&self) -> bool {
        self.code().is_some()
    }

    /// Returns true if waiting for another transaction's lock took too long.
    pub(super) fn is_blocked(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Returns true if a statement failed on purpose (it divides by zero to do so).
    pub(super) fn is_division_by_zero(&self) -> bool {
        self.code() == Some(&SqlState::DIVISION_BY_ZERO)
    }

    /// Returns true if the error only says that an earlier statement of the transaction failed.
    pub(super) fn is_echo(&self) -> bool {
        self.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }

    /// Returns true if a concurrent write may be the cause: a unique key, a serialization failure, a
    /// deadlock, a lock timeout, or a record that has moved.
    pub(super) fn may_be_rival(&self) -> bool {
        const CODES: [SqlState; 4] = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        match self {
            Self::Read(error) => error.is_retryable(),
            Self::Reported { .. } | Self::Silence | Self::Away => {
                self.code().is_some_and(|code| CODES.contains(code))
            }
        }
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        let severity = error.as_db_error().and_then(DbError::parsed_severity);
        let ends_session = matches!(severity, Some(Severity::Panic | Severity::Fatal) | None);
        Self::Reported {
            code: error.code().cloned(),
            text: text_of(&error),
            is_undone: !ends_session,
        }
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for DriverError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::postgres::{PgDatabaseError, PgSeverity};
        match error.as_database_error().and_then(|db| db.try_downcast_ref::<PgDatabaseError>()) {
            Some(db) => Self::Reported {
                code: Some(SqlState::from_code(db.code())),
                text: format!("{} ({})", db.message(), db.code()),
                is_undone: db.severity() == PgSeverity::Error,
            },
            None => Self::Reported { code: None, text: error.to_string(), is_undone: false },
        }
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
            Self::Reported { text, .. } => f.write_str(text),
            Self::Silence => f.write_str("the server does not answer"),
            Self::Away => f.write_str("the server is away"),
            Self::Read(error) => error.fmt(f),
        }
    }
}

/// Makes the error of a step that got no connection, so nothing was sent.
pub(super) fn no_connection(doing: &'static str, error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => unavailable(doing, text_of(error)),
        PoolError::Timeout(_) => unavailable(doing, "too busy: no connection became free in time"),
        PoolError::Closed => unavailable(doing, "the store is closed"),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            unavailable(doing, error.to_string())
        }
    }
}
