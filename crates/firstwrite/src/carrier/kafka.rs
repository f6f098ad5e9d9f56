//! Carries messages to a Kafka topic, by an idempotent producer that waits for all in-sync replicas.
//!
//! 1. The record's key is the message's ordering key, so that one order stays in one partition, or the
//!    wire key where there is none. The header `Idempotency-Key` is the wire key, for the consumer to
//!    recognise a repetition by, and `content-type` says what the payload is.
//! 2. Kafka recognises what one producer repeats by itself, and nothing that is handed to it again: the
//!    dedupe window is zero, so a delivery whose acknowledgement was lost is not repeated by itself.
//! 3. Delivered: in the partition. The provider's id is `<topic>/<partition>@<offset>`.
//! 4. Retry: no broker answers, or none knows the topic, or the client's own queue is full: nothing was sent.
//! 5. Refused: too large, not a record the broker takes, or no right to the topic.
//! 6. Unknown: everything else, a timeout above all. The client does not tell whether a message that
//!    timed out had been transmitted, so after a failure the brokers are asked about the topic before the
//!    next is sent: while they are down, messages end as retry.
//!
//! There is no probe: Kafka cannot be asked about a key.
//!
//! The client is built without TLS and SASL's stronger mechanisms, which would need more C libraries. An
//! application that needs them adds `rdkafka` with its feature `ssl` (or `ssl-vendored`) to its own
//! dependencies and sets `security.protocol` and the rest in [`KafkaSettings::options`].
//!
//! Tested against the mock cluster of the client library, which speaks the protocol and is a test double.

mod session;
mod settings;

use std::fmt;
use std::time::Duration;

use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Ending, Probed};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use tokio::time::timeout;

use super::broker::{SettingsError, Slot, delivered, retry, told, unknown};
use session::Line;
pub use settings::KafkaSettings;

/// The client looks for messages that are out of time once a second, and tells; this is for a client that
/// does not.
const GRACE: Duration = Duration::from_secs(5);

/// The broker will not have it, whenever it comes.
const REFUSED: [RDKafkaErrorCode; 5] = [
    RDKafkaErrorCode::InvalidMessage,
    RDKafkaErrorCode::InvalidMessageSize,
    RDKafkaErrorCode::MessageBatchTooLarge,
    RDKafkaErrorCode::MessageSizeTooLarge,
    RDKafkaErrorCode::TopicAuthorizationFailed,
];

/// It was not transmitted.
const NOT_SENT: [RDKafkaErrorCode; 4] = [
    RDKafkaErrorCode::PurgeQueue,
    RDKafkaErrorCode::QueueFull,
    RDKafkaErrorCode::UnknownPartition,
    RDKafkaErrorCode::UnknownTopic,
];

/// Carries messages to one Kafka topic.
pub struct KafkaCarrier {
    settings: KafkaSettings,
    slot: Slot<Line>,
}

impl KafkaCarrier {
    /// Checks the settings; connects at the first delivery.
    pub fn new(settings: KafkaSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        // The brokers' answer has its own time limit; this one is for a client that does not keep it.
        let slot = Slot::new(settings.timeout + GRACE);
        Ok(Self { settings, slot })
    }

    async fn deliver(&self, claimed_message: &ClaimedMessage) -> Delivery {
        let line = match self.slot.get(|| Line::connect(&self.settings)).await {
            Ok(line) => line,
            Err(delivery) => return delivery,
        };
        let wire_key = claimed_message.wire_key();
        let headers = OwnedHeaders::new()
            .insert(Header { key: "Idempotency-Key", value: Some(&wire_key) })
            .insert(Header { key: "content-type", value: Some(&claimed_message.content_type) });
        let record = FutureRecord::to(&self.settings.topic)
            .key(claimed_message.ordering_key.as_deref().unwrap_or(&wire_key))
            .payload(&claimed_message.payload[..])
            .headers(headers);
        let delivery = match line.producer().send_result(record) {
            // The client takes it from here. It may transmit the record several times, which the brokers
            // recognise by the producer's sequence numbers: all of it is one delivery.
            Ok(sent) => match timeout(self.settings.timeout + GRACE, sent).await {
                Ok(Ok(Ok(stored))) => {
                    let (partition, offset) = (stored.partition, stored.offset);
                    let id = format!("{}/{partition}@{offset}", self.settings.topic);
                    delivered(Some(id), "stored")
                }
                Ok(Ok(Err((error, _)))) => failed(&error),
                Ok(Err(_)) => unknown("the client was closed"),
                Err(_) => unknown("the client tells nothing"),
            },
            Err((error, _)) => not_taken(&error),
        };
        if !matches!(delivery.ending, Ending::Delivered(_)) {
            // The client keeps what it last heard of a topic, a missing right too. And a producer that is
            // dropped sends nothing any more.
            self.slot.forget(&line);
        }
        delivery
    }
}

/// Returns the result where the client did not take a record: nothing was sent.
fn not_taken(error: &KafkaError) -> Delivery {
    match error.rdkafka_error_code() {
        Some(code) if REFUSED.contains(&code) => Delivery::new(Ending::Refused, told(error)),
        _ => retry(told(error)),
    }
}

/// Returns the result where the client gave a record up.
fn failed(error: &KafkaError) -> Delivery {
    match error.rdkafka_error_code() {
        Some(code) if REFUSED.contains(&code) => Delivery::new(Ending::Refused, told(error)),
        Some(code) if NOT_SENT.contains(&code) => retry(told(error)),
        _ => unknown(told(error)),
    }
}

impl Carrier for KafkaCarrier {
    fn carry<'a>(&'a self, claimed_message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.deliver(claimed_message))
    }

    fn probe<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        None
    }
}

impl fmt::Debug for KafkaCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaCarrier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use firstwrite_core::outbox::Ending;

    use super::*;

    #[test]
    fn only_what_is_certain_is_retried_or_refused() {
        let failed = |code| failed(&KafkaError::MessageProduction(code)).ending;
        assert_eq!(failed(RDKafkaErrorCode::MessageTimedOut), Ending::Unknown);
        assert_eq!(failed(RDKafkaErrorCode::NotEnoughReplicasAfterAppend), Ending::Unknown);
        assert_eq!(failed(RDKafkaErrorCode::PurgeInflight), Ending::Unknown);
        assert_eq!(failed(RDKafkaErrorCode::PurgeQueue), Ending::Retry);
        assert_eq!(failed(RDKafkaErrorCode::MessageSizeTooLarge), Ending::Refused);
        let not_taken = |code| not_taken(&KafkaError::MessageProduction(code)).ending;
        assert_eq!(not_taken(RDKafkaErrorCode::QueueFull), Ending::Retry);
        assert_eq!(not_taken(RDKafkaErrorCode::MessageSizeTooLarge), Ending::Refused);
    }
}
