//! Credentials, fetched for each attempt and never written down.

use std::fmt;

use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue, Uri};

use crate::{BoxError, BoxFuture};

/// Gives the headers by which the server knows the caller.
///
/// Implemented for closures that return a future: `|ask: Ask| async move { ... }`.
pub trait Credentials: Send + Sync + 'static {
    /// Headers for one attempt, such as `Authorization`.
    fn headers(&self, ask: Ask) -> BoxFuture<'_, Result<HeaderMap, BoxError>>;
}

/// Purpose of credentials.
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

/// A token that does not change: `Authorization: Bearer ...`. `Debug` does not show it.
#[derive(Clone)]
pub struct Bearer(HeaderValue);

impl Bearer {
    /// The token, or an error if a header cannot hold it.
    pub fn new(token: &str) -> Result<Self, InvalidHeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl Credentials for Bearer {
    fn headers(&self, _: Ask) -> BoxFuture<'_, Result<HeaderMap, BoxError>> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, self.0.clone())]);
        Box::pin(std::future::ready(Ok(headers)))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
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
