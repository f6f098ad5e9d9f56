//! Request to the provider, and the answers to the caller: the interim one and the final ones.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use firstwrite::Attempt;
use firstwrite_core::outbox::Answers;
use firstwrite_core::{HeaderPolicy, Interim, Message, MessageError, Outcome};
use serde_json::json;

use crate::ledger::Payment;
use crate::problem::Problem;

/// The name of the provider among destinations.
pub(crate) const DESTINATION: &str = "provider";

const STEP: &str = "charge";

/// Asks the provider to make the payment; with it goes what the caller is told in the end.
pub(crate) fn message(attempt: &Attempt, payment: &Payment) -> Result<Message, MessageError> {
    let wanted = json!({
        "amount": payment.amount,
        "currency": payment.currency,
        "reference": payment.id,
    });
    let answers = Answers { delivered: made(payment), refused: declined(payment) };
    let message = attempt.message(STEP, DESTINATION, wanted.to_string().into())?;
    Ok(message.answering(answers))
}

/// The answer until the provider has answered: 202, and where to look.
pub(crate) fn interim(payment: &Payment, wait_for: Duration) -> Response<Bytes> {
    let mut response = firstwrite::json(StatusCode::ACCEPTED, payment);
    response.headers_mut().insert(LOCATION, location(payment));
    response.extensions_mut().insert(Interim { wait_for });
    response
}

/// The answer when the provider has made the payment.
fn made(payment: &Payment) -> Outcome {
    let json = HeaderValue::from_static("application/json");
    let headers = [(CONTENT_TYPE, json), (LOCATION, location(payment))];
    outcome(StatusCode::CREATED, &headers.into_iter().collect(), template(payment).into())
}

/// The answer when the provider will never make it.
fn declined(payment: &Payment) -> Outcome {
    let (head, body) = Problem::declined(&payment.id).to_response().into_parts();
    outcome(head.status, &head.headers, body)
}

fn outcome(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Outcome {
    Outcome::new(status, HeaderPolicy::default().keep(headers), body)
}

/// The payment with a place for the provider's id, and no other place that looks like it: a
/// customer may be called anything.
fn template(payment: &Payment) -> String {
    let text = serde_json::to_string(payment).expect("texts and numbers can be written as JSON");
    let place = format!("\"provider_id\":\"{}\"", Answers::PROVIDER_ID);
    text.replace(Answers::PROVIDER_ID, &Answers::PROVIDER_ID.replace('{', "\\u007b"))
        .replace("\"provider_id\":null", &place)
}

fn location(payment: &Payment) -> HeaderValue {
    HeaderValue::try_from(format!("/payments/{}", payment.id))
        .expect("an id is made of letters and digits")
}

#[cfg(test)]
mod tests {
    use firstwrite_core::Body;
    use firstwrite_core::outbox::Receipt;
    use serde_json::Value;

    use super::*;

    fn told(customer: &str) -> Value {
        let payment = Payment {
            id: "pay_1".to_owned(),
            amount: 4990,
            currency: "EUR".to_owned(),
            customer: customer.to_owned(),
            status: "pending".to_owned(),
            provider_id: None,
            refunded: 0,
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            settled_at: None,
        };
        let answers = Answers { delivered: made(&payment), refused: declined(&payment) };
        let receipt = Receipt { provider_id: Some("ch_7".to_owned()) };
        match answers.when_delivered(&receipt).body {
            Body::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Body::Tombstone | Body::Sealed(_) | Body::Released => panic!("the body is there"),
        }
    }

    #[test]
    fn the_final_answer_tells_the_providers_id() {
        let payment = told("cus_1");
        assert_eq!((&payment["provider_id"], &payment["id"]), (&"ch_7".into(), &"pay_1".into()));
    }

    #[test]
    fn a_customer_may_be_called_anything() {
        for name in ["{provider_id}", "\"provider_id\":null", "\\{provider_id}"] {
            let payment = told(name);
            assert_eq!(
                (&payment["customer"], &payment["provider_id"]),
                (&name.into(), &"ch_7".into())
            );
        }
    }
}
