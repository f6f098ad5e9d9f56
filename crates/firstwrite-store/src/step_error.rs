//! Errors of steps of which nothing was done.

use firstwrite_core::{BoxError, StoreError, StoreErrorKind};

/// Returns the error for an invalid row.
pub(crate) fn corrupt(what: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::Corrupt, "reading a record").caused_by(what)
}

/// Returns the error for an unsupported operation.
pub(crate) fn unsupported(doing: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::definite(StoreErrorKind::Unsupported, doing).caused_by(why)
}

/// Returns the error for a step that was not begun.
pub(crate) fn unavailable(doing: &'static str, why: impl Into<BoxError>) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, doing).caused_by(why)
}
