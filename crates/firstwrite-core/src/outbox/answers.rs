//! Final answers for clients whose interim answer waits for a message.

use bytes::Bytes;

use super::{Next, Receipt};
use crate::{Body, Outcome};

/// Outcomes that can replace a record's interim answer once its message is settled. They are stored with
/// the message, so that any worker can give the final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Outcome if the message arrives. In its body, [`Answers::PROVIDER_ID`] stands for the provider's id.
    pub delivered: Outcome,
    /// Outcome if the destination will never take the message.
    pub refused: Outcome,
}

impl Answers {
    /// Replaced in the body of [`Self::delivered`] by the provider's id, spelt as inside a JSON string.
    pub const PROVIDER_ID: &'static str = "{provider_id}";

    /// The answer that follows from what became of the message, if one does. A message that waits, or is
    /// unknown, or was given up for want of success, leaves the interim answer as it is.
    pub fn after(&self, next: &Next) -> Option<Outcome> {
        match next {
            Next::Delivered(receipt) => Some(self.when_delivered(receipt)),
            Next::Refused => Some(self.when_refused()),
            Next::Dead(_) | Next::Waiting { .. } | Next::Unknown(_) => None,
        }
    }

    /// The answer when the message will never arrive.
    pub fn when_refused(&self) -> Outcome {
        Outcome { is_interim: false, ..self.refused.clone() }
    }

    /// The answer when the message has arrived.
    pub fn when_delivered(&self, receipt: &Receipt) -> Outcome {
        let body = match &self.delivered.body {
            Body::Bytes(bytes) => {
                Body::Bytes(fill(bytes, receipt.provider_id.as_deref().unwrap_or_default()))
            }
            body @ (Body::Tombstone | Body::Sealed(_) | Body::Released) => body.clone(),
        };
        Outcome { body, is_interim: false, ..self.delivered.clone() }
    }
}

/// Puts the id where the body has a place for it.
pub(crate) fn fill(body: &Bytes, provider_id: &str) -> Bytes {
    let Ok(text) = std::str::from_utf8(body) else { return body.clone() };
    if !text.contains(Answers::PROVIDER_ID) {
        return body.clone();
    }
    let mut spelt = String::with_capacity(provider_id.len());
    for character in provider_id.chars() {
        match character {
            '"' | '\\' => spelt.extend(['\\', character]),
            control if u32::from(control) < 32 => {
                let code = u32::from(control);
                spelt.extend(["\\u00", if code < 16 { "0" } else { "1" }]);
                spelt.extend(char::from_digit(code % 16, 16));
            }
            other => spelt.push(other),
        }
    }
    Bytes::from(text.replace(Answers::PROVIDER_ID, &spelt))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::KeptHeaders;
    use crate::outbox::{Cause, Sent};

    fn answers() -> Answers {
        let outcome = |status, body: &'static str| {
            Outcome::new(status, KeptHeaders::default(), Bytes::from_static(body.as_bytes()))
        };
        Answers {
            delivered: outcome(StatusCode::CREATED, r#"{"id":1,"provider":"{provider_id}"}"#),
            refused: outcome(StatusCode::PAYMENT_REQUIRED, r#"{"id":1}"#),
        }
    }

    fn body(provider_id: &str) -> Bytes {
        let receipt = Receipt { provider_id: Some(provider_id.to_owned()) };
        match answers().when_delivered(&receipt).body {
            Body::Bytes(bytes) => bytes,
            Body::Tombstone | Body::Sealed(_) | Body::Released => panic!("the body is there"),
        }
    }

    #[test]
    fn the_providers_id_is_put_in_its_place() {
        assert_eq!(body("pay_7"), r#"{"id":1,"provider":"pay_7"}"#);
    }

    #[test]
    fn no_id_can_break_out_of_its_place() {
        for id in ["a\"b", "a\\b", "a\nb\u{1}", "ü{provider_id}"] {
            let parsed: serde_json::Value = serde_json::from_slice(&body(id)).unwrap();
            assert_eq!(parsed["provider"], id);
        }
    }

    #[test]
    fn only_an_end_that_is_known_gives_an_answer() {
        let status = |next: Next| answers().after(&next).map(|outcome| outcome.status.as_u16());
        assert_eq!(status(Next::Delivered(Receipt::default())), Some(201));
        assert_eq!(status(Next::Refused), Some(402));
        assert_eq!(status(Next::Dead(Cause::Refused)), None);
        assert_eq!(status(Next::Dead(Cause::Exhausted)), None);
        assert_eq!(status(Next::Unknown("in a test")), None);
        let sent = Sent::Maybe;
        assert_eq!(status(Next::Waiting { pause: Duration::ZERO, counts: true, sent }), None);
    }
}
