//! Why a run could not be carried out. What an API does wrong is a finding, not an error.

use std::fmt;

/// Why there is no report.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for does not hold together.
    Usage,
    /// It was begun and could not be done.
    Failed,
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, message: message.into() }
    }

    /// Whose turn it is.
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
