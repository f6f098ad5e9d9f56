//! Building the answers that are ours: replays, refusals, early acceptances.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    Body, Effect, Key, Outcome, Policy, ProblemBase, Rejection, RejectionKind, StoreErrorKind,
    Timestamp, Verdict,
};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use http_body::Body as _;

use crate::body::ResponseBody;
use crate::observe::RequestResult;
use crate::status;

/// `true` on an answer that was given before.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Time until which the outcome is kept, as an HTTP date.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// `true` on an answer that another will replace: retry the request, or read its status, for the final one.
pub const IDEMPOTENCY_INTERIM: HeaderName = HeaderName::from_static("idempotency-interim");
/// `unknown` on an answer of the handler or API that is passed on while its effect is in doubt: the key stays
/// uncertain, or is free to run again. Never on an answer that is kept.
pub const IDEMPOTENCY_OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// Header of an outcome that holds the trace of its attempt, if the code that ran the attempt wrote it there.
/// It is not for callers: the code that sends the answer removes it.
pub const ATTEMPT_TRACEPARENT: HeaderName = HeaderName::from_static("firstwrite-traceparent");
/// The preferences that were honoured (RFC 7240).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The last second that an HTTP date can name: the year has four digits.
const HTTP_DATE_MAX: Timestamp = Timestamp::from_millis(253_402_300_799_000);

/// An answer with a JSON body, as atomic handlers give it.
///
/// A value that cannot be written as JSON becomes a 500, which keeps nothing.
pub fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Bytes> {
    let (status, content_type, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, "application/json", body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Vec::new())
        }
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Answers a retry from the first outcome.
pub(crate) fn replay(outcome: &Outcome, retained_until: Timestamp) -> Response<ResponseBody> {
    let mut response = first(outcome, Some(retained_until));
    if matches!(outcome.body, Body::Bytes(_)) {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        response.extensions_mut().insert(RequestResult::Replayed);
    }
    response
}

/// Answers with an outcome for the first time. `retained_until` is the time until which it is kept, if it is.
pub(crate) fn first(
    outcome: &Outcome,
    retained_until: Option<Timestamp>,
) -> Response<ResponseBody> {
    let body = match &outcome.body {
        Body::Bytes(bytes) => bytes.clone(),
        Body::Tombstone => return answer_not_kept(outcome, retained_until),
        // No verdict leads here; a caller that gets here another way gets nothing of it either.
        Body::Sealed(_) | Body::Released => {
            return rejection(&Rejection::new(RejectionKind::StoreUnavailable));
        }
    };
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = outcome.status;
    let headers = response.headers_mut();
    for (name, value) in outcome.headers.iter() {
        headers.append(name.clone(), value.clone());
    }
    if let Some(retained_until) = retained_until {
        stamp(headers, retained_until);
    }
    response
}

/// Answers from a verdict that does not let the request run.
pub(crate) fn verdict(verdict: &Verdict, policy: &Policy) -> Response<ResponseBody> {
    if let Verdict::Replay { outcome, retained_until } = verdict {
        return replay(outcome, *retained_until);
    }
    match Rejection::of_verdict(verdict, policy) {
        Some(refusal) => rejection(&refusal),
        // The key was freed in the meantime: whether our own attempt counted is not known.
        None => rejection(&Rejection::outcome_unknown_now()),
    }
}

/// A refusal.
pub(crate) fn rejection(rejection: &Rejection) -> Response<ResponseBody> {
    let mut response = rejection.to_response().map(ResponseBody::whole);
    response.extensions_mut().insert(RequestResult::Refused(rejection.kind()));
    response
}

/// The refusal of a request that would change one of our own resources.
pub(crate) fn read_only() -> Response<ResponseBody> {
    let mut response = rejection(&Rejection::new(RejectionKind::MethodNotAllowed));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// The refusal of a request that was not run because of the store. One that has lost history cannot
/// say whether the key was used: that is no matter of waiting for it to come back.
pub(crate) fn store_failed(kind: StoreErrorKind) -> Response<ResponseBody> {
    let refused = if kind == StoreErrorKind::HistoryLost {
        RejectionKind::OutcomeUnknown
    } else {
        RejectionKind::StoreUnavailable
    };
    rejection(&Rejection::new(refused))
}

/// The 202 of `Prefer: respond-async`.
pub(crate) fn accepted(key: &Key, policy: &Policy) -> Response<ResponseBody> {
    let location = status::location(key);
    let document = serde_json::json!({ "state": "reserved", "location": location });
    let mut response = whole(StatusCode::ACCEPTED, "application/json", &document);
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(location) {
        headers.insert(LOCATION, location);
    }
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    headers.insert(IDEMPOTENCY_INTERIM, HeaderValue::from_static("true"));
    headers.insert(RETRY_AFTER, seconds(policy.retry_after));
    response.extensions_mut().insert(RequestResult::Accepted);
    response
}

/// The attempt ran, failed, and nothing it did counts: the same key runs afresh.
pub(crate) fn failed() -> Response<ResponseBody> {
    Rejection::new(RejectionKind::AttemptFailed).to_response().map(ResponseBody::whole)
}

/// The answer to a request whose own answer broke off, where its head says that nothing ran: a whole one, from
/// which the key is released. The wait that the head asks for is kept.
pub(crate) fn cut(head: &response::Parts, policy: &Policy) -> Response<ResponseBody> {
    let asked = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let cut = Rejection::answer_cut(head.status).retry_after(asked.unwrap_or(policy.retry_after));
    let mut response = cut.to_response().map(ResponseBody::whole);
    response.extensions_mut().insert(Effect::None);
    response
}

/// The application is put together in a way that the operation cannot work in.
pub(crate) fn misconfigured() -> Response<ResponseBody> {
    Rejection::new(RejectionKind::Misconfigured).to_response().map(ResponseBody::whole)
}

/// The same answer, with the `type` of a problem document below `base`.
pub(crate) fn typed(
    mut response: Response<ResponseBody>,
    base: Option<&ProblemBase>,
) -> Response<ResponseBody> {
    let refusal = response.extensions_mut().remove::<Rejection>();
    let (Some(base), Some(refusal)) = (base, refusal) else { return response };
    let is_empty = response.body().is_end_stream();
    response.map(|body| {
        if is_empty { body } else { ResponseBody::whole(Bytes::from(refusal.to_json_at(base))) }
    })
}

/// A document for one caller only.
pub(crate) fn document(document: &serde_json::Value) -> Response<ResponseBody> {
    let mut response = whole(StatusCode::OK, "application/json", document);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Sets the time until which the outcome is kept, or the mark of an interim one, which stands until another
/// replaces it.
pub(crate) fn stamp(headers: &mut HeaderMap, retained_until: Timestamp) {
    if retained_until == Timestamp::NEVER {
        headers.insert(IDEMPOTENCY_INTERIM, HeaderValue::from_static("true"));
        return;
    }
    let date = httpdate::fmt_http_date(retained_until.min(HTTP_DATE_MAX).to_system_time());
    if let Ok(value) = HeaderValue::try_from(date) {
        headers.insert(IDEMPOTENCY_EXPIRES, value);
    }
}

/// Says in an answer that is passed on that its effect is in doubt.
pub(crate) fn mark_in_doubt(headers: &mut HeaderMap) {
    headers.insert(IDEMPOTENCY_OUTCOME, HeaderValue::from_static("unknown"));
}

/// A duration in whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> HeaderValue {
    let seconds = u64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
    HeaderValue::from(seconds.max(1))
}

/// The action was carried out; its answer was passed on once and is gone.
fn answer_not_kept(outcome: &Outcome, retained_until: Option<Timestamp>) -> Response<ResponseBody> {
    let mut response = rejection(&Rejection::answer_not_kept(outcome.status));
    let headers = response.headers_mut();
    if let Some((_, location)) = outcome.headers.iter().find(|(name, _)| **name == LOCATION) {
        headers.insert(LOCATION, location.clone());
    }
    if let Some(retained_until) = retained_until {
        stamp(headers, retained_until);
    }
    response
}

fn whole(
    status: StatusCode,
    content_type: &'static str,
    document: &serde_json::Value,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(Bytes::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use firstwrite_core::KeptHeaders;

    use super::*;

    #[test]
    fn a_date_beyond_the_calendar_is_the_last_one() {
        let outcome =
            Outcome::new(StatusCode::OK, KeptHeaders::default(), Bytes::from_static(b"x"));
        let response = replay(&outcome, Timestamp::from_millis(i64::MAX - 1));
        let expires = response.headers()[IDEMPOTENCY_EXPIRES].to_str().unwrap();
        assert_eq!(expires, "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn an_interim_answer_says_so_and_one_that_is_not_kept_says_nothing() {
        let outcome =
            Outcome::new(StatusCode::ACCEPTED, KeptHeaders::default(), Bytes::from_static(b"x"));
        let said = |retained_until| {
            let response = first(&outcome, retained_until);
            let says = |name| response.headers().contains_key(name);
            (says(&IDEMPOTENCY_INTERIM), says(&IDEMPOTENCY_EXPIRES))
        };
        assert_eq!(said(Some(Timestamp::NEVER)), (true, false));
        assert_eq!(said(Some(Timestamp::from_millis(1_000))), (false, true));
        assert_eq!(said(None), (false, false));
    }

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        assert_eq!(seconds(Duration::ZERO), "1");
        assert_eq!(seconds(Duration::from_millis(1001)), "2");
    }
}
