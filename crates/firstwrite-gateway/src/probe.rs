//! Asking an upstream whether a request had its effect, when its answer was lost.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::{KeptStatuses, Key, Outcome, Policy, ProbeForm, Tenant, strict_json};
use firstwrite_core::codec::percent;
use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{ProbeId, RecordId, Timestamp};
use http::header::{HOST, HeaderMap};
use http::{HeaderName, HeaderValue, Request, StatusCode, response};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;

use crate::body::RequestBody;
use crate::forward::STEP;
use crate::upstream::{Caller, Calling, Target, UpstreamError, Upstreams, is_target};

/// Endpoint that is asked about lost answers, and how its answer is read.
#[derive(Debug)]
pub struct Probe {
    /// Server other than the upstream itself, if there is one.
    elsewhere: Option<Upstreams>,
    authority: Option<HeaderValue>,
    /// With `{key}` in it.
    target: String,
    headers: HeaderMap,
    /// Status that clients are answered with, instead of the probe's own.
    status: Option<StatusCode>,
    form: ProbeForm,
    /// Time after an attempt was given up from which a "no" is believed: what was sent may still be under way.
    grace: Duration,
}

/// Settings of a probe.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// A path of the upstream, or the address of another server; `{key}` in it stands for the key that was
    /// forwarded.
    pub url: String,
    /// Headers to send, such as credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Status that clients are answered with if it happened; the probe's own status unless set.
    pub status: Option<StatusCode>,
    /// Places of the list in the answer and of the key in an entry. An empty list means that it did not happen;
    /// the one entry with the key is the answer; any other list means nothing.
    pub form: ProbeForm,
    /// Time after an attempt was given up from which a "no" is believed. Longer than a call may take.
    pub grace: Duration,
}

/// Result of asking a probe.
#[derive(Debug)]
pub(crate) enum Found {
    /// It happened, and this is what it made.
    Happened(Box<(response::Parts, Bytes)>),
    /// There is no such thing, or not yet.
    Nothing,
    /// The probe gave no usable answer.
    Silence(String),
}

/// Stands for the forwarded key in a probe's address.
const PLACE: &str = "{key}";

/// A probe that hangs must not keep others from being asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Answers about one request are small.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl Probe {
    /// A "no" sooner than this may come before the effect.
    pub const GRACE: Duration = Duration::from_mins(2);

    /// Checks the settings.
    pub fn new(settings: ProbeSettings, calling: &Calling) -> Result<Self, UpstreamError> {
        let ProbeSettings { url, headers, status, form, grace } = settings;
        let wrong = |what: &str| Err(UpstreamError::new(format!("a probe {what}")));
        if grace <= calling.answer_within {
            return wrong(&format!(
                "needs a grace longer than answer_within ({}), or it believes a no while a call is under way",
                humantime::format_duration(calling.answer_within)
            ));
        }
        if status.is_some_and(|status| !KeptStatuses::default().keeps(status)) {
            return wrong(
                "answers with a status that is kept: 2xx, 3xx, or 4xx but 401, 407, 408, 421, 425, 429 \
                 and 431",
            );
        }
        if let Err(why) = form.check() {
            return wrong(&format!("cannot be read: {why}"));
        }
        if !url.contains(PLACE) {
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
        if !target.contains(PLACE) || !is_target(&target.replace(PLACE, "key")) {
            return wrong(
                "has a path without spaces, control characters or a fragment, and {key} in it",
            );
        }
        let headers = headers.into_iter().collect();
        Ok(Self { elsewhere, authority, target, headers, status, form, grace })
    }

    /// Returns the identity of the probe, for an API of this name.
    pub(crate) fn id(&self, service: &str) -> ProbeId {
        let authority = self.authority.as_ref().and_then(|authority| authority.to_str().ok());
        ProbeId::of(&[authority.unwrap_or(service), &self.target])
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Asks about the request of `tenant` under `key` that was made at `asked_at`.
    pub(crate) async fn ask(
        &self,
        upstreams: &Upstreams,
        (tenant, key): (&Tenant, &Key),
        asked_at: Timestamp,
    ) -> Found {
        match timeout(ANSWER_WITHIN, self.answered(upstreams, (tenant, key), asked_at)).await {
            Ok(found) => found,
            Err(_elapsed) => Found::Silence("no answer in time".to_owned()),
        }
    }

    async fn answered(
        &self,
        upstreams: &Upstreams,
        (tenant, key): (&Tenant, &Key),
        asked_at: Timestamp,
    ) -> Found {
        let key = match wire_key_of(RecordId::of(tenant, key), key, STEP) {
            Ok(key) => key,
            Err(error) => return Found::Silence(error.to_string()),
        };
        let asked = match self.question(upstreams, &key) {
            Ok(request) => {
                let upstreams = self.elsewhere.as_ref().unwrap_or(upstreams);
                upstreams.call(Box::new(request), Caller::Probe).await
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
        match parts.status {
            StatusCode::OK => {}
            // Of a list, it says that a list was made.
            StatusCode::CREATED if self.form.list.is_none() => {}
            status if self.form.says_absent(status) => return Found::Nothing,
            status => return Found::Silence(format!("answered {status}")),
        }
        let body = match entry_of(&parts.headers, body, &self.form, (&key, asked_at)) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Found::Nothing,
            Err(what) => return Found::Silence(what.into_owned()),
        };
        parts.status = self.status.unwrap_or(parts.status);
        Found::Happened(Box::new((parts, body)))
    }

    fn question(&self, upstreams: &Upstreams, key: &str) -> Result<Request<RequestBody>, String> {
        let target = self.target.replace(PLACE, &percent::encode(key));
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

/// Returns the outcome to keep of a probe's answer, as if it had been the first.
pub(crate) fn outcome(parts: &response::Parts, body: Bytes, policy: &Policy) -> Outcome {
    Outcome::new(parts.status, policy.kept_headers.keep(&parts.headers), body)
}

/// Returns the entry of `key`: the body itself where the form says nothing, or JSON of its own.
fn entry_of(
    headers: &HeaderMap,
    body: Bytes,
    form: &ProbeForm,
    (key, asked_at): (&str, Timestamp),
) -> Result<Option<Bytes>, Cow<'static, str>> {
    if !form.reads_content() {
        return Ok(Some(body));
    }
    let document =
        strict_json::parse(&body).ok_or("the probe's answer is not JSON without repeated names")?;
    let entry = form.find(headers, &document, key, asked_at)?;
    // A single answer passes as it came: only one of a list is cut out.
    Ok(if form.list.is_none() { Some(body) } else { entry.map(|one| one.to_string().into()) })
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
