//! One request and its answer, within the time there is.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{Sending, within};
use crate::client::Core;
use crate::entry::Spelling;
use crate::event::Step;
use crate::rules::{Dialect, key_time};
use crate::transport::{Failure, Reply};

impl Sending<'_> {
    /// Gives the request to the transport and waits for the answer, as long as the key lives.
    pub(super) async fn exchange(&self, credentials: HeaderMap) -> Result<Reply, Failure> {
        let (core, request) = (self.core, self.request(credentials));
        let life = self.entry.life();
        let lives = key_time(&life, &core.settings.limits, core.clock.now());
        let limit = self.time_limit().min(lives);
        let mut sent = core.transport.send(request, core.settings.answer_bytes_max);
        let mut is_told = false;
        let told = poll_fn(|context| {
            // A future does nothing before it is asked, so its bytes are on their way from here on at the earliest.
            let answer = sent.as_mut().poll(context);
            if !std::mem::replace(&mut is_told, true) {
                self.tell(Step::Sent, None);
            }
            answer
        });
        in_time(core, limit, told).await
    }

    /// The time that a request may take.
    pub(super) fn time_limit(&self) -> Duration {
        let limit = self.core.settings.attempt_timeout;
        self.time_left().map_or(limit, |left| left.min(limit))
    }

    /// The form in which the key is sent: that of the first attempt.
    pub(super) fn spelling(&self) -> Spelling {
        self.entry.spelling.clone().unwrap_or_else(|| self.core.settings.spelling())
    }

    fn request(&self, credentials: HeaderMap) -> http::Request<Bytes> {
        let own = &self.entry.request;
        let mut request = http::Request::new(own.body.clone());
        *request.method_mut() = own.method.clone();
        *request.uri_mut() = own.url.clone();
        *request.headers_mut() = credentials;
        let headers = request.headers_mut();
        headers.extend(own.headers.iter().cloned());
        let Spelling { dialect, header } = self.spelling();
        let key = self.entry.key.as_str();
        let key = match dialect {
            Dialect::Draft07 => format!("\"{key}\""),
            Dialect::Stripe | Dialect::Generic => key.to_owned(),
        };
        let mut key = HeaderValue::try_from(key).expect("a key is made of letters and digits");
        key.set_sensitive(true);
        headers.insert(header, key);
        request
    }
}

/// The answer, or what counts as a lost one when time is up.
pub(super) async fn in_time(
    core: &Core,
    limit: Duration,
    sent: impl Future<Output = Result<Reply, Failure>>,
) -> Result<Reply, Failure> {
    within(core, Some(limit), sent).await.unwrap_or_else(|| {
        Err(Failure::Lost(format!("there was no answer within {limit:?}").into()))
    })
}
