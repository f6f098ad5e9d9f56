//! One request to a protected operation, as the rest of the crate sees it.

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::{
    BoxError, BoxFuture, Comparison, Fingerprint, Key, Mode, Policy, RecordId, Request,
    RespondAsync, Secrets, Tenant,
};
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};

use crate::body::ResponseBody;
use crate::policies::Operation;

/// A request that may run: who sent it, under which key, and by which policy.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Arc<Request>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) answer_when: AnswerWhen,
}

/// Time at which the caller wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerWhen {
    /// Once there is an outcome.
    Ended,
    /// As soon as the request is accepted: `Prefer: respond-async`.
    Accepted,
}

/// Everything that is needed to run the handler once.
pub(crate) struct Call {
    pub(crate) run: Run,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    /// Name that replaces the host, if one is set.
    pub(crate) service_name: Option<Arc<str>>,
}

/// The handler, without its types: whatever is inside the layer.
pub(crate) type Run = Box<dyn FnOnce(Parts, Bytes) -> Running + Send>;
/// The handler at work.
pub(crate) type Running = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

const PREFER: HeaderName = HeaderName::from_static("prefer");

impl Exchange {
    pub(crate) fn new(
        tenant: Tenant,
        key: Key,
        operation: Operation,
        secrets: &Secrets,
        call: &Call,
    ) -> Self {
        let Operation { name, policy } = operation;
        let id = RecordId::of(&tenant, &key);
        let secret = secrets.for_taking(&tenant);
        let fingerprint = Fingerprint::of(&call.asked(), &policy.fingerprint, secret, &id);
        let answer_when = match (policy.respond_async, policy.mode) {
            (RespondAsync::Honour, Mode::Reserved) if prefers_async(&call.parts.headers) => {
                AnswerWhen::Accepted
            }
            // In atomic mode nothing is durable before the end, so there is nothing to acknowledge.
            (RespondAsync::Honour, Mode::Atomic | Mode::Reserved) | (RespondAsync::Ignore, _) => {
                AnswerWhen::Ended
            }
        };
        let request = Arc::new(Request { id, tenant, key, operation: name, fingerprint });
        Self { request, policy, answer_when }
    }

    /// Returns the request and its policy, shared, as the protocol takes them.
    pub(crate) fn parts(&self) -> (Arc<Request>, Arc<Policy>) {
        (Arc::clone(&self.request), Arc::clone(&self.policy))
    }

    /// Names what differs from the request that `stored` was taken of.
    pub(crate) fn differing(
        &self,
        stored: &Fingerprint,
        secrets: &Secrets,
        call: &Call,
    ) -> Vec<String> {
        let (asked, rules) = (call.asked(), &self.policy.fingerprint);
        let known = (secrets, &self.request.tenant);
        Fingerprint::differing_parts(&asked, rules, known, &self.request.id, stored)
    }

    /// Returns the same exchange with its fingerprint taken the way `stored` was: by an earlier version, or
    /// with a secret that no longer comes first. `None` if it is taken that way already, or if this process
    /// cannot.
    ///
    /// A record that it then takes over keeps that way, which its digest already had.
    pub(crate) fn like(
        &self,
        stored: &Fingerprint,
        secrets: &Secrets,
        call: &Call,
    ) -> Option<Self> {
        let Request { id, tenant, fingerprint, .. } = &*self.request;
        if fingerprint.compare(stored) != Comparison::OtherWay {
            return None;
        }
        let rules = &self.policy.fingerprint;
        let fingerprint =
            Fingerprint::taken_like(stored, &call.asked(), rules, (secrets, tenant), id)?;
        let request = Arc::new(Request { fingerprint, ..Request::clone(&self.request) });
        Some(Self { request, policy: Arc::clone(&self.policy), answer_when: self.answer_when })
    }
}

impl Call {
    /// Returns the parts of the request that enter its fingerprint.
    fn asked(&self) -> firstwrite_core::Parts<'_> {
        let uri = &self.parts.uri;
        let host = || self.parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        firstwrite_core::Parts {
            method: &self.parts.method,
            authority: self
                .service_name
                .as_deref()
                .or_else(|| uri.authority().map(http::uri::Authority::as_str))
                .or_else(host)
                .unwrap_or(""),
            path: uri.path(),
            query: uri.query(),
            headers: &self.parts.headers,
            body: &self.body,
        }
    }
}

impl std::fmt::Debug for Call {
    /// Headers carry credentials, and bodies are other people's data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("method", &self.parts.method).finish_non_exhaustive()
    }
}

/// Returns true if one of the preferences is `respond-async` (RFC 7240).
fn prefers_async(headers: &HeaderMap) -> bool {
    headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok()).any(|line| {
        line.split(',').any(|preference| {
            let token = preference.split([';', '=']).next().unwrap_or("");
            token.trim().eq_ignore_ascii_case("respond-async")
        })
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        let check = |line: &'static str, expected| {
            let mut headers = HeaderMap::new();
            headers.append(PREFER, HeaderValue::from_static("return=minimal"));
            headers.append(PREFER, HeaderValue::from_static(line));
            assert_eq!(prefers_async(&headers), expected, "{line}");
        };
        check("respond-async", true);
        check("wait=10, Respond-Async; foo=bar", true);
        check("respond-asynchronously", false);
        check("handling=respond-async", false);
        check("", false);
    }
}
