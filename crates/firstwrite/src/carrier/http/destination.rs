//! Settings of an HTTP destination, each with its default, and what they must hold to.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Key, Pointer, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use super::exchange::Reading;
use super::guard::{Guard, check_allowed};
use super::network::Network;
use super::probe::{Probe, ProbeSettings};
use super::signature::SigningSecret;
use super::statuses::{Meanings, SetMeanings, Statuses};
use super::{Clock, HttpCarrier, connect};

/// Settings of a destination that receives messages by HTTP.
///
/// Each method sets one thing and documents its default; [`build`](Self::build) checks the whole.
///
/// ```
/// use std::time::Duration;
///
/// use firstwrite::carrier::http::HttpDestination;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let carrier = HttpDestination::new("http://payments.example.com/v1/charges")
///     .timeout(Duration::from_secs(10))
///     .refusal_statuses("400,402,404,422".parse()?)
///     .provider_id("/id".parse()?)
///     .build()?;
/// # let _ = carrier;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct HttpDestination {
    url: String,
    method: Method,
    timeout: Duration,
    connect_timeout: Duration,
    headers: HeaderMap,
    key_header: HeaderName,
    is_key_quoted: bool,
    statuses: SetMeanings,
    provider_id: Option<Pointer>,
    answer_bytes_max: usize,
    retry_after_max: Duration,
    signing_secrets: Vec<SigningSecret>,
    allowed_networks: Vec<Network>,
    root_certificates: Vec<u8>,
    probe: Option<ProbeSettings>,
    clock: Clock,
}

/// Settings that cannot hold.
#[derive(Debug)]
pub struct HttpDestinationError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Headers that the carrier or HTTP itself sets.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

impl HttpDestination {
    /// Response time of most providers at their slowest; a longer timeout only delays the "unknown".
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
    /// Enough for a look-up, a lost packet and TLS to the other side of the world.
    pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
    /// An answer is looked at for one id.
    pub const ANSWER_BYTES_MAX_DEFAULT: usize = 64 * 1024;
    /// No destination can keep its messages waiting for longer at a time.
    pub const RETRY_AFTER_MAX_DEFAULT: Duration = Duration::from_hours(1);
    /// The one that is going and the one that is coming.
    pub const SIGNING_SECRETS_MAX: usize = 2;

    /// Messages go to `url`, which is `http` or `https`, by POST.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            method: Method::POST,
            timeout: Self::TIMEOUT_DEFAULT,
            connect_timeout: Self::CONNECT_TIMEOUT_DEFAULT,
            headers: HeaderMap::new(),
            key_header: Key::HEADER,
            is_key_quoted: false,
            statuses: SetMeanings::default(),
            provider_id: None,
            answer_bytes_max: Self::ANSWER_BYTES_MAX_DEFAULT,
            retry_after_max: Self::RETRY_AFTER_MAX_DEFAULT,
            signing_secrets: Vec::new(),
            allowed_networks: Vec::new(),
            root_certificates: Vec::new(),
            probe: None,
            clock: Arc::new(system_clock),
        }
    }

    /// POST, PUT or PATCH; POST unless set.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets the time that one exchange may take: connection, request, answer and its body. 30 seconds unless
    /// set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time that a connection may take to be ready: look-up, TCP and TLS. 5 seconds unless set.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Adds a header to every request, probes included. Every value is treated as a secret. A
    /// `User-Agent` replaces ours; headers that the carrier itself sets are refused.
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.append(name, value);
        self
    }

    /// The header that the wire key travels in; `Idempotency-Key` unless set.
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.key_header = name;
        self
    }

    /// Sends the key as a structured-field string, in quotes, as the draft standard of
    /// `Idempotency-Key` has it. Bare unless set: it is what most providers read.
    pub fn quoted_key(mut self) -> Self {
        self.is_key_quoted = true;
        self
    }

    /// Statuses that say that the message arrived; 200 to 299 unless set.
    ///
    /// A status that is given a meaning loses the one it had by default; one that is given two is an error.
    pub fn success_statuses(mut self, statuses: Statuses) -> Self {
        self.statuses.delivered = Some(statuses);
        self
    }

    /// Statuses by which the provider itself says that it will never take the message; unless set, 400 to
    /// 499 save 408, 409, 425, 429, and save 401, 403, 404, 405 and 407. Those five, and 3xx save 303, say
    /// that something else answered ([`Ending::NotThere`](firstwrite_core::outbox::Ending::NotThere)),
    /// unless they are given a meaning here.
    pub fn refusal_statuses(mut self, statuses: Statuses) -> Self {
        self.statuses.refused = Some(statuses);
        self
    }

    /// Statuses that say that the message certainly had no effect and may come again; 425 and 429 unless
    /// set. Every other status is unknown: 500 and 503 may come after the effect, 408 and 409 while it is
    /// under way, 303 after it.
    pub fn retry_statuses(mut self, statuses: Statuses) -> Self {
        self.statuses.retry = Some(statuses);
        self
    }

    /// Sets the place of the provider's id in a successful answer: a text or a whole number. If it is set and
    /// there is none, the ending is unknown, since something else must have answered. Not looked for unless
    /// set.
    pub fn provider_id(mut self, pointer: Pointer) -> Self {
        self.provider_id = Some(pointer);
        self
    }

    /// Sets the number of bytes read of an answer; 64 KiB unless set.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Sets the maximum `Retry-After` that is honoured; an hour unless set.
    pub fn retry_after_max(mut self, duration: Duration) -> Self {
        self.retry_after_max = duration;
        self
    }

    /// Signs each message (Standard Webhooks). Once for each secret that is alive, at most two; not
    /// signed unless set.
    pub fn sign_with(mut self, secret: SigningSecret) -> Self {
        self.signing_secrets.push(secret);
        self
    }

    /// Lets messages go to addresses of `network` although they are not public: loopback, private,
    /// link-local. None unless set.
    pub fn allow_network(mut self, network: Network) -> Self {
        self.allowed_networks.push(network);
        self
    }

    /// Certificates (PEM) to trust besides those of the platform. None unless set.
    pub fn root_certificates(mut self, pem: &[u8]) -> Self {
        self.root_certificates = pem.to_vec();
        self
    }

    /// Sets the probe that asks whether a message had its effect. Nothing is asked unless set.
    pub fn probe(mut self, settings: ProbeSettings) -> Self {
        self.probe = Some(settings);
        self
    }

    /// The clock for timestamps of signatures and dates in `Retry-After`; the system's unless set.
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks the settings and makes the carrier.
    pub fn build(mut self) -> Result<HttpCarrier, HttpDestinationError> {
        let url = check_url(&self.url).map_err(|error| error.of("the destination's URL"))?;
        self.check()?;
        let meanings = Meanings::new(&self.statuses).map_err(HttpDestinationError::new)?;
        let probe = self.probe.take().map(Probe::new).transpose()?;
        let is_https =
            url.scheme_str() == Some("https") || probe.as_ref().is_some_and(Probe::is_https);
        let tls = connect::tls(&self.root_certificates, is_https)?;
        check_allowed(&self.allowed_networks)?;
        let guard = Guard::new(self.allowed_networks.clone());
        self.headers
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!("firstwrite/", env!("CARGO_PKG_VERSION"))));
        Ok(HttpCarrier {
            client: connect::client(guard, tls, self.connect_timeout),
            url,
            method: self.method,
            timeout: self.timeout,
            headers: self.headers,
            key_header: self.key_header,
            is_key_quoted: self.is_key_quoted,
            answer_bytes_max: self.answer_bytes_max,
            reading: Reading {
                meanings,
                provider_id: self.provider_id,
                retry_after_max: self.retry_after_max,
            },
            signing_secrets: self.signing_secrets,
            allowed_networks: self.allowed_networks,
            probe,
            clock: self.clock,
        })
    }

    fn check(&self) -> Result<(), HttpDestinationError> {
        if ![Method::POST, Method::PUT, Method::PATCH].contains(&self.method) {
            return Err(HttpDestinationError::new("messages are sent by POST, PUT or PATCH"));
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(HttpDestinationError::new("a timeout is longer than zero"));
        }
        if self.signing_secrets.len() > Self::SIGNING_SECRETS_MAX {
            return Err(HttpDestinationError::new(
                "at most two signing secrets are alive at a time",
            ));
        }
        let mut taken = RESERVED.iter().copied().chain([self.key_header.as_str()]);
        if let Some(name) = taken.find(|name| self.headers.contains_key(*name)) {
            return Err(HttpDestinationError::new(format!(
                "the header {name} is set by the carrier"
            )));
        }
        if RESERVED.contains(&self.key_header.as_str()) {
            let text = format!("the key cannot travel in {}", self.key_header);
            return Err(HttpDestinationError::new(text));
        }
        Ok(())
    }
}

/// A URL that requests can be sent to.
pub(super) fn check_url(text: &str) -> Result<Uri, HttpDestinationError> {
    let uri: Uri =
        text.parse().map_err(|error| HttpDestinationError::caused("is no URL", error))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(HttpDestinationError::new("begins with http:// or https://"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(HttpDestinationError::new("has a host"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(HttpDestinationError::new(
            "has no user or password in it; give a header instead",
        ));
    }
    // The parser takes any text for a port; what is no number would be sent to the usual one.
    let is_port_wrong = uri.authority().is_some_and(|authority| {
        let is_written = authority.as_str().len() > authority.host().len();
        is_written && authority.port_u16().is_none_or(|port| port == 0)
    });
    if is_port_wrong {
        return Err(HttpDestinationError::new("has a port from 1 to 65535, or none"));
    }
    Ok(uri)
}

pub(super) fn system_clock() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "receivers compare with their own clocks")]
    let now = std::time::SystemTime::now();
    let since_epoch = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::EPOCH.plus(since_epoch)
}

impl HttpDestinationError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    pub(super) fn caused(text: &str, source: impl Error + Send + Sync + 'static) -> Self {
        Self { text: text.to_owned(), source: Some(Box::new(source)) }
    }

    /// Prefixes the text with the setting that is invalid.
    pub(super) fn of(self, subject: &str) -> Self {
        Self { text: format!("{subject} {}", self.text), ..self }
    }
}

impl fmt::Debug for HttpDestination {
    /// Without what may be a secret: paths and queries, headers, signing secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpDestination")
            .field("method", &self.method)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("statuses", &self.statuses)
            .field("provider_id", &self.provider_id)
            .field("allowed_networks", &self.allowed_networks)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for HttpDestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl Error for HttpDestinationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests;
