//! The retry budget of an origin: a retry takes a token, and gives it back if it is not sent.

use http::Uri;

use super::Sending;
use crate::client::Core;
use crate::error::Error;

impl<'a> Sending<'a> {
    /// Takes what a retry costs, and waits for it; first attempts cost nothing.
    pub(super) async fn take_token(&self) -> Result<Option<Token<'a>>, Error> {
        if self.entry.attempts == 0 {
            return Ok(None);
        }
        let (core, url) = (self.core, self.entry.request.url.clone());
        let wait = core.origins.take_token(&url, core.clock.elapsed());
        let token = Token { core, url, is_used: false };
        self.sleep(wait).await?;
        Ok(Some(token))
    }
}

/// The price of a retry, given back unless it is used.
pub(super) struct Token<'a> {
    core: &'a Core,
    url: Uri,
    is_used: bool,
}

impl Token<'_> {
    pub(super) fn spend(mut self) {
        self.is_used = true;
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.core.origins.give_token(&self.url, self.core.clock.elapsed());
        }
    }
}
