//! A message to another system, written in the same commit as the effect it follows from.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::outbox::Answers;
use crate::{Key, RecordId, Tenant};

/// A message to be delivered, written with the effect.
///
/// Its derived key, `<client key>:<step>`, is fixed here and constant over all deliveries, so that
/// the destination can recognise a repetition.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    record: RecordId,
    tenant: Tenant,
    derived_key: String,
    destination: String,
    content_type: String,
    payload: Bytes,
    ordering_key: Option<String>,
    delay: Duration,
    answers: Option<Box<Answers>>,
}

/// A message that cannot be written: which limit it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageError(&'static str);

impl Message {
    /// Steps and destinations are names in code and configuration, not data.
    pub const NAME_BYTES_MAX: usize = 64;
    /// A message is a notice, not a file.
    pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

    /// A message of `step` under the client's key, to `destination`.
    pub fn new(
        tenant: &Tenant,
        key: &Key,
        step: &str,
        destination: &str,
        payload: Bytes,
    ) -> Result<Self, MessageError> {
        if !Self::is_name(step) {
            return Err(MessageError::step());
        }
        if !Self::is_name(destination) {
            return Err(MessageError(
                "a destination is 1 to 64 visible characters without a colon",
            ));
        }
        if payload.len() > Self::PAYLOAD_BYTES_MAX {
            return Err(MessageError("a payload is at most 1 MiB"));
        }
        Ok(Self {
            record: RecordId::of(tenant, key),
            tenant: tenant.clone(),
            derived_key: format!("{}:{step}", key.as_str()),
            destination: destination.to_owned(),
            content_type: "application/json".to_owned(),
            payload,
            ordering_key: None,
            delay: Duration::ZERO,
            answers: None,
        })
    }

    /// Returns true if `name` is a valid name of a step or a destination.
    pub fn is_name(name: &str) -> bool {
        (1..=Self::NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
    }

    /// Sets the content type of the payload; `application/json` unless set.
    #[must_use]
    pub fn content_type(mut self, content_type: &str) -> Self {
        content_type.clone_into(&mut self.content_type);
        self
    }

    /// Messages with one ordering key are delivered in the order of their commits.
    #[must_use]
    pub fn ordered_by(mut self, ordering_key: &str) -> Self {
        self.ordering_key = Some(ordering_key.to_owned());
        self
    }

    /// Delays delivery until this much time has passed since its commit.
    #[must_use]
    pub fn delayed_by(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the answers that replace the record's interim answer when this message has arrived, or was refused.
    #[must_use]
    pub fn answering(mut self, answers: Answers) -> Self {
        self.answers = Some(Box::new(answers));
        self
    }

    /// Returns the id of the record it is written under.
    pub fn record(&self) -> RecordId {
        self.record
    }

    /// Returns the tenant of the message.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the key by which the destination recognizes the message, the same for all deliveries.
    pub fn derived_key(&self) -> &str {
        &self.derived_key
    }

    /// Returns the name of the destination.
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Returns the content type of the payload.
    pub fn payload_type(&self) -> &str {
        &self.content_type
    }

    /// Returns the payload to deliver.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The order it belongs to, if any.
    pub fn ordering_key(&self) -> Option<&str> {
        self.ordering_key.as_deref()
    }

    /// Returns the time to wait after the commit.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the answers that replace the record's interim answer, if this message decides that.
    pub fn answers(&self) -> Option<&Answers> {
        self.answers.as_deref()
    }
}

impl MessageError {
    pub(crate) const fn step() -> Self {
        Self("a step is 1 to 64 visible characters without a colon")
    }
}

impl fmt::Debug for Message {
    /// Neither the key nor the payload: both are other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("destination", &self.destination)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MessageError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(step: &str, payload: usize) -> Result<Message, MessageError> {
        let (tenant, key) = (Tenant::new("acme").unwrap(), Key::parse("order-1").unwrap());
        Message::new(&tenant, &key, step, "mailer", Bytes::from(vec![0; payload]))
    }

    #[test]
    fn the_derived_key_is_the_clients_key_and_the_step() {
        assert_eq!(message("receipt", 0).unwrap().derived_key(), "order-1:receipt");
    }

    #[test]
    fn a_step_cannot_imitate_another_keys_step() {
        assert!(message("", 0).is_err());
        assert!(message("a:b", 0).is_err());
        assert!(message("a b", 0).is_err());
        assert!(message(&"s".repeat(65), 0).is_err());
    }

    #[test]
    fn payloads_are_bounded() {
        assert!(message("s", Message::PAYLOAD_BYTES_MAX).is_ok());
        assert!(message("s", Message::PAYLOAD_BYTES_MAX + 1).is_err());
    }
}
