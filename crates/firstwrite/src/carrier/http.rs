//! Carries messages by HTTP: one request for one delivery.
//!
//! The request has the payload as its body, the wire key in `Idempotency-Key` and, if secrets are set, a
//! signature as Standard Webhooks has it. How a delivery ends:
//!
//! 1. a success status is *delivered*, with the provider's id if the settings say where it stands;
//! 2. a refusal status is *refused*;
//! 3. a status of something in front of the destination (401, 403, 404, 405, 407, a redirect, which is never
//!    followed) is *not there*;
//! 4. a retry status, and a request of which certainly nothing was sent, is *retry*: no connection, no
//!    address that may be connected to, a certificate that is not trusted;
//! 5. everything else is *unknown*: any other status, an answer that did not come in time, a connection
//!    that broke after the request was given to it, a success without the id that belongs to it.
//!
//! Connections are kept and used again, HTTP/2 if the server speaks it. Nothing is sent twice by itself:
//! also a request that was lost on a connection the server had just closed is reported. Only public
//! addresses are connected to, unless the settings allow others ([`HttpDestination::allow_network`]).
//! Proxies named in the environment are ignored, since behind one there would be no address to check.

mod connect;
mod destination;
mod exchange;
pub(crate) mod getting;
mod guard;
mod network;
mod probe;
mod signature;
mod statuses;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Ending, Probed};
use firstwrite_core::{BoxFuture, Timestamp};
use http::header::InvalidHeaderValue;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use connect::HttpClient;
use exchange::{Reading, exchange};
use probe::Probe;

pub use destination::{HttpDestination, HttpDestinationError};
pub use network::{Network, NetworkError};
pub use probe::ProbeSettings;
pub use signature::{SignatureError, SigningSecret, SigningSecretError, Verified, verify};
pub use statuses::{Statuses, StatusesError};

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Carries messages to one URL. Made by [`HttpDestination::build`].
pub struct HttpCarrier {
    client: HttpClient,
    url: Uri,
    method: Method,
    timeout: Duration,
    headers: HeaderMap,
    key_header: HeaderName,
    is_key_quoted: bool,
    answer_bytes_max: usize,
    reading: Reading,
    signing_secrets: Vec<SigningSecret>,
    allowed_networks: Vec<Network>,
    probe: Option<Probe>,
    clock: Clock,
}

impl HttpCarrier {
    async fn deliver(&self, message: &ClaimedMessage) -> Delivery {
        // A content type can be any text; no destination will ever accept this one.
        let Ok(request) = self.request(message) else {
            return Delivery::new(Ending::Refused, "its content type or key cannot be a header");
        };
        match exchange(&self.client, request, self.timeout, self.answer_bytes_max).await {
            Ok(answer) => self.reading.delivery(&answer, (self.clock)()),
            Err(failed) => failed.into(),
        }
    }

    async fn ask(&self, probe: &Probe, message: &ClaimedMessage) -> Probed {
        let mut request = Request::new(Full::default());
        let wire_key = message.wire_key();
        match probe.url(&wire_key) {
            Ok(url) => *request.uri_mut() = url,
            Err(_) => return Probed::Silent("the key makes the probe's URL too long".to_owned()),
        }
        *request.headers_mut() = self.headers.clone();
        match exchange(&self.client, request, self.timeout, self.answer_bytes_max).await {
            Ok(answer) => probe.read(&answer, &wire_key, message.created_at..=message.claimed_at),
            Err(failed) => Probed::Silent(failed.detail),
        }
    }

    fn request(
        &self,
        message: &ClaimedMessage,
    ) -> Result<Request<Full<Bytes>>, InvalidHeaderValue> {
        let wire_key = message.wire_key();
        let mut request = Request::new(Full::new(message.payload.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        // hyper leaves it away for an empty body, and some servers then ask for it (411).
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(message.payload.len()));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(&message.content_type)?);
        let key = if self.is_key_quoted { quoted(&wire_key) } else { wire_key.clone() };
        headers.insert(self.key_header.clone(), secret(&key)?);
        if !self.signing_secrets.is_empty() {
            let id = signature::id(&wire_key);
            let timestamp = ((self.clock)().as_millis() / 1000).to_string();
            let signature =
                signature::sign(&self.signing_secrets, &id, &timestamp, &message.payload);
            headers.insert(signature::ID, secret(&id)?);
            headers.insert(signature::TIMESTAMP, HeaderValue::from_str(&timestamp)?);
            headers.insert(signature::SIGNATURE, secret(&signature)?);
        }
        Ok(request)
    }
}

/// A value that no log shows and no table of a connection keeps.
fn secret(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Quotes a text as a structured-field string (RFC 9651).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Carrier for HttpCarrier {
    fn carry<'a>(&'a self, message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.deliver(message))
    }

    fn probe<'a>(&'a self, message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        let probe = self.probe.as_ref()?;
        Some(Box::pin(self.ask(probe, message)))
    }
}

impl fmt::Debug for HttpCarrier {
    /// Shows only the scheme and host of the URL and the names of headers: the rest may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCarrier")
            .field("scheme", &self.url.scheme_str())
            .field("host", &self.url.host())
            .field("method", &self.method)
            .field("timeout", &self.timeout)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("key_header", &self.key_header)
            .field("is_key_quoted", &self.is_key_quoted)
            .field("reading", &self.reading)
            .field("signature_count", &self.signing_secrets.len())
            .field("allowed_networks", &self.allowed_networks)
            .field("probe", &self.probe)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_key_is_a_structured_field_string() {
        assert_eq!(quoted("order-1:charge"), "\"order-1:charge\"");
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
