//! The stored answer of an attempt: status, headers from an allow-list, and the body's bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};

/// The answer stored under a key and replayed to every retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status of the first answer.
    pub status: StatusCode,
    /// The headers that were kept, repetition and order included.
    pub headers: KeptHeaders,
    /// The body, or a mark that it was not kept.
    pub body: Body,
    /// True if this answer stands in for one that is not yet known, which replaces it once.
    pub is_interim: bool,
}

/// Marks a handler's response, in its extensions, as one that stands in for the answer that a message
/// of the same transaction will bring: see [`crate::Message::answering`].
///
/// Only in atomic mode, and only on a success: without the message nothing would ever replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interim {
    /// Time to wait for the final answer before the caller gets this one.
    pub wait_for: Duration,
}

/// The body of an outcome.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// The whole body.
    Bytes(Bytes),
    /// The body was over the cap, or a stream: it was passed on and not kept. The key is spent all
    /// the same, so a retry gets a clear answer and never a second run.
    Tombstone,
    /// Headers and body, encrypted: only a process with the encryption key can open them and answer.
    Sealed(Bytes),
    /// No answer at all: the attempt was released after its client had been told to ask for the result.
    /// The key is free, and only the status resource tells of it.
    Released,
}

/// Headers kept with an outcome, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptHeaders(Arc<[(HeaderName, HeaderValue)]>);

/// Selects the response headers that an outcome keeps: a fixed allow-list and what a policy adds.
#[derive(Clone, Debug, Default)]
pub struct HeaderPolicy {
    extra: Vec<HeaderName>,
}

/// Headers that describe the kept body or name a created resource; the rest belong to one exchange
/// only.
const KEPT: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::LOCATION,
    header::ETAG,
    header::LINK,
];

/// Never kept, whatever a policy says: credentials, framing, and facts about one exchange.
/// A replayed cookie would hand one caller's session to another.
const NEVER: [&str; 19] = [
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "authentication-info",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "date",
    "age",
    "traceparent",
    "tracestate",
    "x-request-id",
];

impl Outcome {
    /// An outcome with a whole body.
    pub fn new(status: StatusCode, headers: KeptHeaders, body: Bytes) -> Self {
        Self { status, headers, body: Body::Bytes(body), is_interim: false }
    }

    /// The same, standing in for an answer that is not yet known.
    #[must_use]
    pub fn interim(self) -> Self {
        Self { is_interim: true, ..self }
    }

    /// An outcome whose body was not kept.
    pub fn tombstone(status: StatusCode, headers: KeptHeaders) -> Self {
        Self { status, headers, body: Body::Tombstone, is_interim: false }
    }

    /// A note that the attempt ended with `status` and was released. It never answers a request.
    pub fn released(status: StatusCode) -> Self {
        let headers = KeptHeaders::default();
        Self { status, headers, body: Body::Released, is_interim: false }
    }

    /// An outcome of which only the status can be read.
    pub fn sealed(status: StatusCode, sealed: Bytes) -> Self {
        let headers = KeptHeaders::default();
        Self { status, headers, body: Body::Sealed(sealed), is_interim: false }
    }
}

impl Outcome {
    /// Returns true if this is the note of a released attempt: the key is free, and no request is answered from it.
    pub fn is_release_note(&self) -> bool {
        matches!(self.body, Body::Released)
    }

    /// Returns the number of bytes of its headers and body.
    pub fn byte_count(&self) -> u64 {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let body = match &self.body {
            Body::Bytes(bytes) | Body::Sealed(bytes) => bytes.len(),
            Body::Tombstone | Body::Released => 0,
        };
        (headers.sum::<usize>() + body) as u64
    }
}

impl HeaderPolicy {
    /// Adds a header to the allow-list. Returns `false`, and adds nothing, for one that is never
    /// kept.
    pub fn add(&mut self, name: HeaderName) -> bool {
        let allowed = !NEVER.contains(&name.as_str());
        if allowed && !KEPT.contains(&name) && !self.extra.contains(&name) {
            self.extra.push(name);
        }
        allowed
    }

    /// Takes what this policy keeps out of a response's headers.
    ///
    /// What the response's own `Connection` header names is hop-by-hop and left out, even if it is
    /// on the list.
    pub fn keep(&self, headers: &HeaderMap) -> KeptHeaders {
        let hop_by_hop = |name: &HeaderName| {
            headers.get_all(header::CONNECTION).iter().any(|value| {
                value.to_str().is_ok_and(|tokens| {
                    tokens.split(',').any(|token| token.trim().eq_ignore_ascii_case(name.as_str()))
                })
            })
        };
        let kept = headers
            .iter()
            .filter(|(name, _)| KEPT.contains(name) || self.extra.contains(name))
            .filter(|(name, _)| !hop_by_hop(name))
            .map(|(name, value)| (name.clone(), value.clone()));
        KeptHeaders(kept.collect())
    }
}

impl KeptHeaders {
    /// Restores headers from stored pairs.
    pub fn from_pairs(pairs: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self(pairs.into())
    }

    /// The headers, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl std::fmt::Debug for Body {
    /// Bodies are other people's data and never go to a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Tombstone => f.write_str("Tombstone"),
            Self::Released => f.write_str("Released"),
            Self::Sealed(bytes) => write!(f, "Sealed({} bytes)", bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn kept(policy: &HeaderPolicy, pairs: &[(&str, &str)]) -> Vec<String> {
        let kept = policy.keep(&headers(pairs));
        kept.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn repeated_headers_keep_their_number_order_and_commas() {
        let three = [("link", "<a>; rel=x, <b>"), ("link", "<c>"), ("link", "<d>")];
        let expected = ["link: <a>; rel=x, <b>", "link: <c>", "link: <d>"];
        assert_eq!(kept(&HeaderPolicy::default(), &three), expected);
    }

    #[test]
    fn only_the_allow_list_is_kept() {
        let all = [("content-type", "text/plain"), ("date", "now"), ("x-other", "1")];
        assert_eq!(kept(&HeaderPolicy::default(), &all), ["content-type: text/plain"]);
    }

    #[test]
    fn a_policy_adds_headers_but_never_a_cookie_or_a_framing_header() {
        let mut policy = HeaderPolicy::default();
        assert!(policy.add(HeaderName::from_static("x-payment-id")));
        for never in NEVER {
            assert!(!policy.add(HeaderName::from_static(never)), "{never}");
        }
        let all =
            [("x-payment-id", "7"), ("set-cookie", "session=1"), ("www-authenticate", "Basic")];
        assert_eq!(kept(&policy, &all), ["x-payment-id: 7"]);
    }

    #[test]
    fn what_the_connection_header_names_is_not_kept() {
        let mut policy = HeaderPolicy::default();
        policy.add(HeaderName::from_static("x-foo"));
        assert!(kept(&policy, &[("connection", "close, X-Foo"), ("x-foo", "1")]).is_empty());
    }
}
