//! The answer to a client whose request a reconciliation proves to have been carried out.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::outbox::fill;
use crate::{KeptHeaders, Outcome};

/// Builds the answer to a request from the provider's entry for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerTemplate {
    /// The answer's status.
    pub status: StatusCode,
    /// Content type of its body.
    pub content_type: HeaderValue,
    /// Its body.
    pub body: AnswerBody,
}

/// The body of such an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// The provider's own entry.
    Entry,
    /// This text, in which [`crate::outbox::Answers::PROVIDER_ID`] stands for the provider's id, spelt as
    /// inside a JSON string.
    Template(Bytes),
}

impl AnswerTemplate {
    /// A 201 with a JSON body in which `{provider_id}` stands for the provider's id.
    pub fn created(body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::CREATED,
            content_type: HeaderValue::from_static("application/json"),
            body: AnswerBody::Template(body.into()),
        }
    }

    /// The answer, for the entry that the provider calls `provider_id` and gave as `raw`.
    pub fn outcome(&self, provider_id: &str, raw: &Bytes) -> Outcome {
        let body = match &self.body {
            AnswerBody::Entry => raw.clone(),
            AnswerBody::Template(text) => fill(text, provider_id),
        };
        let headers = KeptHeaders::from_pairs(vec![(CONTENT_TYPE, self.content_type.clone())]);
        Outcome::new(self.status, headers, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    #[test]
    fn the_answer_has_the_providers_id_or_its_entry() {
        let template = AnswerTemplate::created(r#"{"payment":"{provider_id}"}"#);
        let entry = AnswerTemplate { body: AnswerBody::Entry, ..template.clone() };
        let raw = Bytes::from_static(b"{\"id\":\"pay_7\"}");
        for (template, body) in [(template, r#"{"payment":"pay_7"}"#), (entry, r#"{"id":"pay_7"}"#)]
        {
            let outcome = template.outcome("pay_7", &raw);
            assert_eq!(outcome.status, StatusCode::CREATED);
            assert_eq!(outcome.body, Body::Bytes(Bytes::from_static(body.as_bytes())));
            assert_eq!(outcome.headers.iter().next().unwrap().1, "application/json");
            assert!(!outcome.is_interim);
        }
    }
}
