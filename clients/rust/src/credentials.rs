//! Credentials, fetched for each attempt and never written down.

use http::{HeaderMap, Uri};

use crate::{BoxError, BoxFuture};

/// Gives the headers by which the server knows the caller.
///
/// Implemented for closures that return a future: `|ask: Ask| async move { ... }`.
pub trait Credentials: Send + Sync + 'static {
    /// Headers for one attempt, such as `Authorization`.
    fn headers(&self, ask: Ask) -> BoxFuture<'_, Result<HeaderMap, BoxError>>;
}

/// What the credentials are for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// The name of the intent.
    pub intent: String,
    /// The address they are sent to.
    pub url: Uri,
    /// True if the last ones were refused: those at hand are of no use, fetch new ones.
    pub refresh: bool,
}

impl<F, R> Credentials for F
where
    F: Fn(Ask) -> R + Send + Sync + 'static,
    R: Future<Output = Result<HeaderMap, BoxError>> + Send + 'static,
{
    fn headers(&self, ask: Ask) -> BoxFuture<'_, Result<HeaderMap, BoxError>> {
        Box::pin(self(ask))
    }
}
