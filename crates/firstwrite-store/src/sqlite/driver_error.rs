//! Maps `SQLite` errors to store errors, and tells how much of a batch a failure affects.

use firstwrite_core::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

pub(super) use crate::step_error::{corrupt, unavailable, unsupported};

/// A failure inside a batch, by how much it affects.
#[derive(Debug)]
pub(super) enum Failure {
    /// This command wrote nothing; the batch goes on.
    Own(StoreError),
    /// The batch's transaction is half-written or gone: nothing of it may be committed.
    Batch(StoreError),
}

/// The kind of error an `SQLite` error is.
pub(super) fn kind_of(error: &rusqlite::Error) -> StoreErrorKind {
    if let rusqlite::Error::FromSqlConversionFailure(..)
    | rusqlite::Error::InvalidColumnType(..)
    | rusqlite::Error::IntegralValueOutOfRange(..) = error
    {
        return StoreErrorKind::Corrupt;
    }
    if let rusqlite::Error::UserFunctionError(source) = error
        && let Some(ours) = source.downcast_ref::<StoreError>()
    {
        return ours.kind();
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Corrupt,
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::FileLockingProtocolFailed,
        ) => StoreErrorKind::Unavailable,
        Some(_) | None => StoreErrorKind::Unsupported,
    }
}

/// A failed step of which nothing was committed.
pub(super) fn definite(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::definite(kind_of(&error), doing).caused_by(error)
}

impl From<StoreError> for Failure {
    /// Reading and refusing write nothing.
    fn from(error: StoreError) -> Self {
        Self::Own(error)
    }
}

impl Failure {
    /// For a statement of a command that has begun to write.
    pub(super) fn batch(doing: &'static str) -> impl Fn(rusqlite::Error) -> Self {
        move |error| Self::Batch(definite(doing)(error))
    }
}
