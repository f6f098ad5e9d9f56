//! Errors that prevent a run. Misbehaviour of the API is a finding, not an error.

use std::fmt;

/// An error that prevents a report.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Kind of an [`Error`]: tells the user's mistakes from failures of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The options contradict each other or are invalid.
    Usage,
    /// The run started and could not be finished.
    Failed,
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, message: message.into() }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
