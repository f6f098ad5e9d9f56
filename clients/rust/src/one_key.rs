//! One key over the retries of reqwest-middleware, for those who want no more than that.

use async_trait::async_trait;
use http::{Extensions, HeaderName, HeaderValue, Method};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::key::Key;
use crate::rules::Dialect;

/// Gives every POST and PATCH a key, the same for all its retries.
///
/// Put it in front of the middleware that retries (`.with(OneKey::new()).with(retries)`): behind it, every attempt
/// would have a key of its own, which is worse than none. A request that has a key already keeps it. Nothing is
/// written down: after a crash the key is forgotten, and nobody knows whether the action happened. An
/// [`Intent`](crate::Intent) does not forget.
#[derive(Clone, Debug)]
pub struct OneKey {
    header: HeaderName,
    is_quoted: bool,
}

impl OneKey {
    /// Keys in `Idempotency-Key`, quoted, as draft-07 has them.
    pub fn new() -> Self {
        Self { header: HeaderName::from_static("idempotency-key"), is_quoted: true }
    }

    /// Keys as servers of another dialect want them.
    #[must_use]
    pub fn dialect(self, dialect: Dialect) -> Self {
        Self { is_quoted: dialect == Dialect::Draft07, ..self }
    }

    /// Keys in another header.
    #[must_use]
    pub fn header(self, header: HeaderName) -> Self {
        Self { header, ..self }
    }

    fn draw(&self) -> Result<HeaderValue> {
        let mut bytes = [0; Key::BYTES];
        getrandom::fill(&mut bytes).map_err(Error::middleware)?;
        let key = Key::from_random(bytes);
        let text =
            if self.is_quoted { format!("\"{}\"", key.as_str()) } else { key.as_str().to_owned() };
        let mut value = HeaderValue::try_from(text).map_err(Error::middleware)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Default for OneKey {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Middleware for OneKey {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let needs_key = matches!(*request.method(), Method::POST | Method::PATCH);
        if needs_key && !request.headers().contains_key(&self.header) {
            request.headers_mut().insert(self.header.clone(), self.draw()?);
        }
        next.run(request, extensions).await
    }
}
