//! One request and its answer, or how far it came, and how the delivery ended by that.

use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use firstwrite_core::outbox::{Delivery, Ending, Receipt};
use firstwrite_core::{Pointer, Timestamp};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::connect::HttpClient;
use super::statuses::{Meaning, Meanings};
use crate::strict_json;

/// A story for people, told by others (a certificate's names, for instance).
const DETAIL_CHARS_MAX: usize = 300;

/// An id is a name, not a document.
const ID_BYTES_MAX: usize = 255;

/// Response of the destination.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Result<Bytes, Unread>,
}

/// Reason why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    TooLong,
    BrokenOff,
    Late,
}

/// There is no answer.
#[derive(Debug)]
pub(super) struct Failed {
    /// False only if it is certain that nothing of the request left this process.
    pub(super) may_be_sent: bool,
    pub(super) detail: String,
}

/// Rules for reading responses.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) meanings: Meanings,
    pub(super) provider_id: Option<Pointer>,
    pub(super) retry_after_max: Duration,
}

/// Sends `request` and reads the answer, all within `timeout`; of the body at most `bytes_max`.
pub(super) async fn exchange(
    client: &HttpClient,
    mut request: Request<Full<Bytes>>,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Answer, Failed> {
    let until = Instant::now() + timeout;
    // Set just before a request is given to its connection: while it is not, nothing was sent.
    let connection = capture_connection(&mut request);
    let response = match timeout_at(until, client.request(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let has_connection = connection.connection_metadata().is_some();
            return Err(Failed {
                may_be_sent: has_connection && !is_unsent(&error),
                detail: story(&error),
            });
        }
        Err(_elapsed) => {
            let may_be_sent = connection.connection_metadata().is_some();
            let lacking = if may_be_sent { "answer" } else { "connection" };
            let within = humantime::format_duration(timeout);
            return Err(Failed { may_be_sent, detail: format!("no {lacking} within {within}") });
        }
    };
    let (parts, body) = response.into_parts();
    let body = match timeout_at(until, read(body, bytes_max)).await {
        Ok(body) => body,
        Err(_elapsed) => Err(Unread::Late),
    };
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

/// Reads the body to its end even if it is not used: only then can the connection be used again.
async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, Unread> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Unread::TooLong),
        Err(_broken) => Err(Unread::BrokenOff),
    }
}

/// Returns true if the client reports that the request was not put on the wire: there was no connection, or it
/// had ended before it took the request up (hyper then gives the request back, as cancelled).
fn is_unsent(error: &legacy::Error) -> bool {
    let is_canceled = |source: &(dyn Error + 'static)| {
        source.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    };
    error.is_connect() || error.source().is_some_and(is_canceled)
}

/// The error and its causes in one line.
fn story(error: &legacy::Error) -> String {
    let mut story = if error.is_connect() { "cannot connect" } else { "no answer" }.to_owned();
    let mut cause = error.source();
    let mut last = String::new();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors repeat what they wrap.
        if !last.contains(&text) {
            write!(story, ": {text}").expect("writing to a string");
            last = text;
        }
        cause = error.source();
    }
    story.chars().filter(|character| !character.is_control()).take(DETAIL_CHARS_MAX).collect()
}

impl From<Failed> for Delivery {
    fn from(failed: Failed) -> Self {
        let ending = if failed.may_be_sent { Ending::Unknown } else { Ending::Retry };
        Self::new(ending, failed.detail)
    }
}

impl Reading {
    /// Returns how the delivery ended.
    pub(super) fn delivery(&self, answer: &Answer, now: Timestamp) -> Delivery {
        let status = answer.status;
        let (ending, detail) = match (self.meanings.of(status.as_u16()), &self.provider_id) {
            (Meaning::Delivered, None) => {
                (Ending::Delivered(Receipt::default()), format!("answered {status}"))
            }
            (Meaning::Delivered, Some(pointer)) => match id_of(answer, pointer) {
                Ok(id) => {
                    let receipt = Receipt { provider_id: Some(id) };
                    (Ending::Delivered(receipt), format!("answered {status}"))
                }
                // The provider always gives an id, so this may be the answer of something before it.
                Err(reason) => (Ending::Unknown, format!("answered {status}, but {reason}")),
            },
            (Meaning::Refused, _) => (Ending::Refused, format!("refused with {status}")),
            (Meaning::NotThere, _) => {
                (Ending::NotThere, format!("answered {status}, as if it were not there"))
            }
            (Meaning::Retry, _) => (Ending::Retry, format!("put off with {status}")),
            (Meaning::Unknown, _) => (Ending::Unknown, format!("answered {status}")),
        };
        let may_come_again = matches!(ending, Ending::Retry | Ending::NotThere | Ending::Unknown);
        let asked = retry_after(&answer.headers, now).filter(|_| may_come_again);
        let is_overloaded =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        Delivery {
            retry_after: asked.map(|asked| asked.min(self.retry_after_max)),
            is_overloaded,
            ..Delivery::new(ending, detail).with_status(status.as_u16())
        }
    }
}

/// The id in the answer's body, or why there is none.
fn id_of(answer: &Answer, pointer: &Pointer) -> Result<String, String> {
    let document = json(answer)?;
    id_at(&document, pointer)
        .ok_or_else(|| format!("has no id at {:?} in its body", pointer.as_str()))
}

/// The answer's body as a document, or why it is none.
pub(super) fn json(answer: &Answer) -> Result<Value, &'static str> {
    let body = &whole_body(answer)?;
    strict_json::parse(body).ok_or("its body is not JSON without repeated names")
}

/// The answer's whole body, or why there is none.
pub(super) fn whole_body(answer: &Answer) -> Result<Bytes, &'static str> {
    answer.body.clone().map_err(|unread| match unread {
        Unread::TooLong => "its body is longer than the destination's limit",
        Unread::BrokenOff => "its body broke off",
        Unread::Late => "its body did not end in time",
    })
}

/// The text or whole number that `pointer` leads to, if it can be an id.
pub(super) fn id_at(document: &Value, pointer: &Pointer) -> Option<String> {
    let id = match document.pointer(pointer.as_str())? {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return None;
        }
    };
    let is_id = (1..=ID_BYTES_MAX).contains(&id.len()) && !id.chars().any(char::is_control);
    is_id.then_some(id)
}

/// Returns the time for which the destination asked to be left alone: in seconds, or until a date.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number can have is a long time all the same.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let date = Timestamp::EPOCH.plus(date.duration_since(UNIX_EPOCH).unwrap_or_default());
    Some(date.since(now))
}

#[cfg(test)]
mod tests;
