//! Reads from a destination's response how the delivery ended.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use firstwrite_core::outbox::{Delivery, Ending, Receipt};
use firstwrite_core::{Pointer, Timestamp};
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::exchange::{Answer, Unread};
use super::statuses::{Meaning, Meanings};
use crate::strict_json;

/// An id is a name, not a document.
const ID_BYTES_MAX: usize = 255;

/// Rules for reading responses.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) meanings: Meanings,
    pub(super) provider_id: Option<Pointer>,
    pub(super) retry_after_max: Duration,
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
