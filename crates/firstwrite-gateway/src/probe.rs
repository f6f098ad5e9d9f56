//! Asking an upstream whether a request had its effect, when its answer was lost.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::core::RecordId;
use firstwrite::core::outbox::wire_key_of;
use firstwrite::{Key, Outcome, Pointer, Policy, Tenant};
use http::header::{HOST, HeaderMap};
use http::{HeaderName, HeaderValue, Request, StatusCode, response};
use http_body_util::{BodyExt as _, Limited};

use crate::body::RequestBody;
use crate::forward::STEP;
use crate::upstream::{Calling, Target, UpstreamError, Upstreams};

/// Who is asked, and how the answer is understood.
#[derive(Debug)]
pub struct Probe {
    /// Another place than the upstream itself, if there is one.
    elsewhere: Option<Upstreams>,
    authority: Option<HeaderValue>,
    /// With `{key}` in it.
    target: String,
    headers: HeaderMap,
    /// What clients are answered with, instead of the probe's own status.
    status: Option<StatusCode>,
    /// Where in the answer a list of what was made stands.
    list: Option<Pointer>,
    /// How long after a request a "no" is believed: what was sent may still be under way.
    grace: Duration,
}

/// How a probe is set up.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// A path of the upstream, or the address of another server; `{key}` in it stands for the key that was
    /// forwarded.
    pub url: String,
    /// What is sent along, such as credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What clients are answered with if it happened; the probe's own status unless set.
    pub status: Option<StatusCode>,
    /// Where in the answer a list stands, of which the first is the answer; empty means that it did not
    /// happen.
    pub list: Option<Pointer>,
    /// How long after a request a "no" is believed.
    pub grace: Duration,
}

/// What was found out.
#[derive(Debug)]
pub(crate) enum Found {
    /// It happened, and this is what it made.
    Happened(Box<(response::Parts, Bytes)>),
    /// There is no such thing, or not yet.
    Nothing,
    /// Nobody said.
    Silence(String),
}

/// Answers about one request are small.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl Probe {
    /// A "no" sooner than this may come before the effect.
    pub const GRACE: Duration = Duration::from_mins(2);

    /// Checks the settings.
    pub fn new(settings: ProbeSettings, calling: &Calling) -> Result<Self, UpstreamError> {
        let ProbeSettings { url, headers, status, list, grace } = settings;
        let wrong = |what: &str| Err(UpstreamError::new(format!("a probe {what}")));
        if !url.contains("{key}") {
            return wrong("needs {key} in its address, for the key that was forwarded");
        }
        let (elsewhere, authority, target) = if url.starts_with('/') {
            (None, None, url)
        } else {
            let Some(start) =
                url.find("://").and_then(|at| url[at + 3..].find('/').map(|end| at + 3 + end))
            else {
                return wrong("is a path of the upstream, or an address with a path");
            };
            let target = Target::new(&url[..start])?;
            let authority = HeaderValue::from_str(target.authority()).ok();
            let calling = Calling { health: None, ..calling.clone() };
            (Some(Upstreams::new(&[target], calling)?), authority, url[start..].to_owned())
        };
        let headers = headers.into_iter().collect();
        Ok(Self { elsewhere, authority, target, headers, status, list, grace })
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Asks about the request of `tenant` under `key`.
    pub(crate) async fn ask(&self, upstreams: &Upstreams, tenant: &Tenant, key: &Key) -> Found {
        let asked = match self.question(upstreams, tenant, key) {
            Ok(request) => {
                self.elsewhere.as_ref().unwrap_or(upstreams).call(Box::new(request)).await
            }
            Err(error) => return Found::Silence(error),
        };
        let (mut parts, body) = match asked {
            Ok(answer) => answer.into_parts(),
            Err(error) => return Found::Silence(error.to_string()),
        };
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Found::Silence(error.to_string()),
        };
        if parts.status == StatusCode::NOT_FOUND || parts.status == StatusCode::GONE {
            return Found::Nothing;
        }
        if !parts.status.is_success() {
            return Found::Silence(format!("answered {}", parts.status));
        }
        let body = match &self.list {
            None => body,
            Some(list) => match first_of(&body, list) {
                Ok(Some(first)) => first,
                Ok(None) => return Found::Nothing,
                Err(what) => return Found::Silence(what.to_owned()),
            },
        };
        parts.status = self.status.unwrap_or(parts.status);
        Found::Happened(Box::new((parts, body)))
    }

    fn question(
        &self,
        upstreams: &Upstreams,
        tenant: &Tenant,
        key: &Key,
    ) -> Result<Request<RequestBody>, String> {
        let key =
            wire_key_of(RecordId::of(tenant, key), key, STEP).map_err(|error| error.to_string())?;
        let target = self.target.replace("{key}", &percent_encoded(&key));
        let mut request =
            Request::get(target).body(RequestBody::empty()).map_err(|e| e.to_string())?;
        *request.headers_mut() = self.headers.clone();
        let authority = self.authority.clone().or_else(|| upstreams.authority());
        if let Some(authority) = authority {
            request.headers_mut().insert(HOST, authority);
        }
        Ok(request)
    }
}

/// What is kept of a probe's answer, as if it had been the first.
pub(crate) fn outcome(parts: &response::Parts, body: Bytes, policy: &Policy) -> Outcome {
    Outcome::new(parts.status, policy.kept_headers.keep(&parts.headers), body)
}

/// The first of a list, as JSON of its own.
fn first_of(body: &[u8], list: &Pointer) -> Result<Option<Bytes>, &'static str> {
    let document: serde_json::Value =
        serde_json::from_slice(body).map_err(|_not_json| "the probe's answer is no JSON")?;
    let found = document.pointer(&list.to_string());
    let Some(items) = found.and_then(serde_json::Value::as_array) else {
        return Err("there is no list where the probe's answer should have one");
    };
    Ok(items.first().map(|item| Bytes::from(item.to_string())))
}

/// Everything but what needs no escape anywhere in a target.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded = format!("{encoded}%{byte:02X}");
        }
    }
    encoded
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Happened(_) => f.write_str("it happened"),
            Self::Nothing => f.write_str("there is no such thing"),
            Self::Silence(why) => write!(f, "nobody said: {why}"),
        }
    }
}
