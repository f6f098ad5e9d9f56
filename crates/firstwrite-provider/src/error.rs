//! Errors of the provider towards its owner, as opposed to its HTTP responses.

use std::error::Error;
use std::fmt;

/// An error in an operation that the provider's owner asked for.
#[derive(Debug)]
pub struct ProviderError {
    kind: ErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Kind of a [`ProviderError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The ledger's file cannot be read or written.
    Ledger,
    /// The ledger's file holds what no provider wrote.
    Corrupt,
    /// Another provider has the ledger open.
    InUse,
    /// The ledger has no room for more payments.
    Full,
    /// The address cannot be listened on.
    Listen,
    /// The behaviour makes no sense.
    Behaviour,
    /// There is no such payment, or the plant makes no sense.
    Plant,
    /// The provider is stopping.
    Stopped,
}

impl ProviderError {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn Error + Send + Sync + 'static>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Stopped, "the provider is stopping")
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ProviderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
