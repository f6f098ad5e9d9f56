//! The refusals we send: one kind per problem code, with what a client may do about it.
//!
//! A rejection is not an error: it is the client's doing, or a conflict, or our saying that nothing
//! was run. Its detail is public; an internal cause goes to the log and never in here.

mod base;
mod kind;
mod words;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

pub use base::{ProblemBase, ProblemBaseError};
pub use kind::RejectionKind;

use crate::fingerprint::AUTHORITY;
use crate::{KeyError, Policy, Verdict};

/// A refusal, ready to be sent as `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    status: StatusCode,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    differing: Vec<String>,
    first_status: Option<StatusCode>,
    challenge: Option<&'static str>,
    is_retryable: bool,
}

impl Rejection {
    /// Time that a client is told to wait where nothing better is known.
    const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
    /// Longer than after a conflict: finding out what happened takes time.
    const RETRY_AFTER_UNKNOWN: Duration = Duration::from_secs(30);

    /// The client sees in `differing` whether it is the same action.
    const NAMED: &str =
        "Use a new key for a new request; to retry the first one, send it unchanged.";

    const ONLY_AUTHORITY: &str = "Only the name of the service (its host or port) differs from the first request. If both \
         names lead to the same service, a new key would carry the action out twice: retry with the \
         first name. The API's owner makes several names one service with `service_name`, in the \
         gateway's file or on the layer.";

    /// A refusal of this kind with its usual status and words.
    pub fn new(kind: RejectionKind) -> Self {
        let patience = if kind == RejectionKind::OutcomeUnknown {
            Self::RETRY_AFTER_UNKNOWN
        } else {
            Self::RETRY_AFTER_DEFAULT
        };
        Self {
            kind,
            status: kind.status(),
            detail: Cow::Borrowed(kind.detail()),
            retry_after: kind.is_retryable().then_some(patience),
            differing: Vec::new(),
            first_status: None,
            challenge: None,
            is_retryable: kind.is_retryable(),
        }
    }

    /// The refusal that a verdict asks for; `None` where the request runs or is replayed.
    pub fn of_verdict(verdict: &Verdict, policy: &Policy) -> Option<Self> {
        let kind = match verdict {
            Verdict::Fresh | Verdict::TakeOver { .. } | Verdict::Replay { .. } => return None,
            Verdict::InProgress { .. } => {
                return Some(Self::new(RejectionKind::InProgress).retry_after(policy.retry_after));
            }
            Verdict::Mismatch => RejectionKind::KeyReused,
            Verdict::Uncertain => RejectionKind::OutcomeUnknown,
            Verdict::Expired => RejectionKind::KeyExpired,
            // Another instance of a newer version can answer; this one must not guess.
            Verdict::Unreadable => RejectionKind::StoreUnavailable,
        };
        Some(Self::new(kind))
    }

    /// Makes the answer to the request whose own attempt ended with an unknown result: 504 instead of the 409
    /// that later requests get.
    pub fn outcome_unknown_now() -> Self {
        Self { status: StatusCode::GATEWAY_TIMEOUT, ..Self::new(RejectionKind::OutcomeUnknown) }
    }

    /// The answer to the request whose own answer was lost, where the next request with its key runs.
    pub fn lost_and_sent_again() -> Self {
        Self::outcome_unknown_now().detail(
            "The answer was lost: the action may have been carried out. Retry with the same key, under which \
             it is recognised.",
        )
    }

    /// The answer to a request without a record that was sent to an upstream and not answered. `is_late`: time
    /// was up; otherwise the connection broke. `is_repeatable`: by its method, repeating it does no harm.
    pub fn answer_lost(is_late: bool, is_repeatable: bool) -> Self {
        let usual = Self::new(RejectionKind::AnswerLost);
        Self {
            status: if is_late { StatusCode::GATEWAY_TIMEOUT } else { usual.status },
            retry_after: is_repeatable.then_some(Self::RETRY_AFTER_DEFAULT),
            is_retryable: is_repeatable,
            ..usual
        }
    }

    /// The answer to a request without a record whose body made no sense in the middle, when its beginning had been
    /// passed on to an upstream, which may have acted on it. The client is at fault, so it is a 400.
    pub fn broken_midway(is_repeatable: bool) -> Self {
        Self { status: StatusCode::BAD_REQUEST, ..Self::answer_lost(false, is_repeatable) }.detail(
            "The request's body could not be read to its end. What came of it was sent to the API, which may \
             have acted on it.",
        )
    }

    /// The answer to a request without a record whose body did not come to its end in time, when its beginning had
    /// been passed on to an upstream, which may have acted on it. Not a 408, after which clients may repeat any
    /// request by themselves.
    pub fn late_midway(is_repeatable: bool) -> Self {
        Self::answer_lost(true, is_repeatable).detail(
            "The request's body did not arrive in time. What came of it was sent to the API, which may have \
             acted on it.",
        )
    }

    /// The answer to a request whose own answer had this status, which says that nothing ran, and broke off.
    pub fn answer_cut(first_status: StatusCode) -> Self {
        let cut = Self::new(RejectionKind::AttemptFailed).detail(
            "The answer broke off. Its beginning says that nothing was carried out; retry with the same key.",
        );
        Self { first_status: Some(first_status), ..cut }
    }

    /// The answer to a retry whose first answer had this status and was not kept.
    pub fn answer_not_kept(first_status: StatusCode) -> Self {
        Self { first_status: Some(first_status), ..Self::new(RejectionKind::AnswerNotKept) }
    }

    /// Names what differs from the first request: JSON pointers, or `method`, `path` and such.
    #[must_use]
    pub fn differing(mut self, names: Vec<String>) -> Self {
        if names == [AUTHORITY] {
            self.detail = Cow::Borrowed(Self::ONLY_AUTHORITY);
        } else if !names.is_empty() {
            self.detail = Cow::Borrowed(Self::NAMED);
        }
        self.differing = names;
        self
    }

    /// Returns true if sending the action under a new key cannot carry it out twice; see
    /// [`RejectionKind::is_new_key_safe`].
    pub fn is_new_key_safe(&self) -> bool {
        self.kind.is_new_key_safe()
    }

    /// Replaces the explanation. It goes to the client: nothing internal belongs in it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the time to wait before a retry.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// Sets the credentials to ask for: the value of `WWW-Authenticate`, visible ASCII.
    #[must_use]
    pub fn challenge(mut self, challenge: &'static str) -> Self {
        self.challenge = Some(challenge);
        self
    }

    /// Returns the reason for the refusal.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The status it is sent with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns true if the same request under the same key may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    /// The explanation.
    pub fn to_detail(&self) -> &str {
        &self.detail
    }

    /// The problem document, with a `type` below `base`.
    ///
    /// It has the members of RFC 9457, `code`, `retryable`, `safe_new_key` and `retry_after`, and a member
    /// `error`: clients made for another API know a failure by it and would take the document for a success.
    pub fn to_json_at(&self, base: &ProblemBase) -> String {
        let mut json = String::with_capacity(768);
        json.push_str("{\"type\":");
        push_string(&mut json, &base.type_of(self.kind.code()));
        json.push_str(",\"title\":");
        push_string(&mut json, self.kind.title());
        write!(json, ",\"status\":{}", self.status.as_u16()).expect("writing to a string");
        json.push_str(",\"detail\":");
        push_string(&mut json, &self.detail);
        json.push_str(",\"code\":");
        push_string(&mut json, self.kind.code());
        write!(
            json,
            ",\"retryable\":{},\"safe_new_key\":{}",
            self.is_retryable,
            self.is_new_key_safe()
        )
        .expect("writing to a string");
        if let Some(seconds) = self.retry_after_seconds() {
            write!(json, ",\"retry_after\":{seconds}").expect("writing to a string");
        }
        if let Some(first_status) = self.first_status {
            write!(json, ",\"first_status\":{}", first_status.as_u16())
                .expect("writing to a string");
        }
        if !self.differing.is_empty() {
            json.push_str(",\"differing\":[");
            for (index, name) in self.differing.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                push_string(&mut json, name);
            }
            json.push(']');
        }
        for (name, value) in [
            (",\"error\":{\"type\":", self.kind.error_type()),
            (",\"code\":", self.kind.code()),
            (",\"message\":", &*self.detail),
        ] {
            json.push_str(name);
            push_string(&mut json, value);
        }
        json.push_str("}}");
        json
    }

    /// Returns the wait in whole seconds, rounded up: a client that comes back too early only meets the same
    /// refusal.
    fn retry_after_seconds(&self) -> Option<u128> {
        self.retry_after.map(|wait| wait.as_millis().div_ceil(1000).max(1))
    }

    /// The problem document, with a `type` where the layer serves its pages.
    pub fn to_json(&self) -> String {
        self.to_json_at(&ProblemBase::default())
    }

    /// The whole response.
    pub fn to_response(&self) -> Response<Bytes> {
        self.to_response_at(&ProblemBase::default())
    }

    /// The whole response, with a `type` below `base`. The rejection is among its extensions, for layers that
    /// answer in other words.
    pub fn to_response_at(&self, base: &ProblemBase) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.to_json_at(base)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds() {
            let value = HeaderValue::from_str(&seconds.to_string()).expect("digits are a value");
            headers.insert(RETRY_AFTER, value);
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response.extensions_mut().insert(self.clone());
        response
    }
}

impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        Self::new(RejectionKind::KeyInvalid).detail(error.to_string())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.code(), self.status.as_u16())
    }
}

/// Appends `text` as a JSON string.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control < ' ' || control == '\u{7f}' => {
                write!(json, "\\u{:04x}", u32::from(control)).expect("writing to a string");
            }
            other => json.push(other),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_document_that_is_json() {
        for kind in RejectionKind::ALL {
            let rejection = Rejection::new(kind).differing(vec!["/a\"b\\\n".to_owned()]);
            let json: serde_json::Value = serde_json::from_str(&rejection.to_json()).unwrap();
            assert_eq!(json["code"], kind.code());
            assert_eq!(json["status"], rejection.status().as_u16());
            assert_eq!(json["retryable"], kind.is_retryable());
            assert_eq!(json["safe_new_key"], rejection.is_new_key_safe());
            assert_eq!(json["differing"][0], "/a\"b\\\n");
            assert_eq!(json["type"], format!("/.firstwrite/problems/{}", kind.code()));
            assert_eq!(json["error"]["code"], kind.code());
            assert_eq!(json["error"]["message"], json["detail"]);
            assert!(json["error"]["type"].as_str().unwrap().ends_with("_error"));
            assert_eq!(json["retry_after"].is_u64(), kind.is_retryable(), "{kind:?}");
        }
    }

    #[test]
    fn a_new_key_is_never_called_safe_after_a_reused_one() {
        // The first request may be the same action with another timestamp, query or name of the service.
        for names in
            [&["/sent_at"][..], &["query"], &["method"], &["authority"], &["(removed)"], &[]]
        {
            let named = names.iter().map(|&name| name.to_owned()).collect();
            let refusal = Rejection::new(RejectionKind::KeyReused).differing(named);
            let json: serde_json::Value = serde_json::from_str(&refusal.to_json()).unwrap();
            assert_eq!(json["safe_new_key"], false, "{names:?}");
            let detail = json["detail"].as_str().unwrap();
            let may_be_the_name = names.is_empty() || names == ["authority"];
            assert_eq!(detail.contains("service_name"), may_be_the_name, "{detail}");
        }
    }

    #[test]
    fn whoever_may_retry_is_told_when() {
        for kind in RejectionKind::ALL {
            let response = Rejection::new(kind).to_response();
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                kind.is_retryable(),
                "{kind:?}"
            );
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }

    #[test]
    fn a_challenge_is_sent_where_there_is_one() {
        let refusal = Rejection::new(RejectionKind::TenantUnknown);
        assert!(!refusal.to_response().headers().contains_key(WWW_AUTHENTICATE));
        let response = refusal.challenge("Bearer").to_response();
        assert_eq!(response.headers()[WWW_AUTHENTICATE], "Bearer");
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        let check = |millis, expected: &str| {
            let rejection = Rejection::new(RejectionKind::InProgress)
                .retry_after(Duration::from_millis(millis));
            assert_eq!(rejection.to_response().headers()[RETRY_AFTER], expected);
        };
        check(0, "1");
        check(1, "1");
        check(1001, "2");
    }

    #[test]
    fn statuses_are_those_of_the_wire_contract() {
        let expected = [
            400, 400, 422, 409, 409, 410, 400, 413, 401, 429, 503, 409, 400, 408, 414, 431, 405,
            404, 404, 400, 415, 502, 502, 503, 500, 500,
        ];
        for (kind, status) in RejectionKind::ALL.into_iter().zip(expected) {
            assert_eq!(Rejection::new(kind).status().as_u16(), status, "{kind:?}");
        }
        assert_eq!(Rejection::outcome_unknown_now().status().as_u16(), 504);
        for (is_late, is_repeatable) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let lost = Rejection::answer_lost(is_late, is_repeatable);
            assert_eq!(lost.status().as_u16(), if is_late { 504 } else { 502 });
            let response = lost.to_response();
            assert_eq!(response.headers().contains_key(RETRY_AFTER), is_repeatable);
            let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(json["retryable"], is_repeatable);
        }
        let not_kept = Rejection::answer_not_kept(StatusCode::CREATED);
        assert!(not_kept.to_json().contains("\"first_status\":201"));
        let cut = Rejection::answer_cut(StatusCode::UNAUTHORIZED);
        assert_eq!((cut.status().as_u16(), cut.is_retryable()), (500, true));
        assert!(cut.to_json().contains("\"first_status\":401"));
    }
}
