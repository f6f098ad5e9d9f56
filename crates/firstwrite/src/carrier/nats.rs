//! Carries messages to NATS JetStream: publishes to a subject, and a stream acknowledges once it has stored the
//! message.
//!
//! 1. `Nats-Msg-Id` is the wire key. Within the stream's `duplicate_window` (2 minutes unless the
//!    stream says otherwise) a second delivery is recognised and acknowledged with the sequence of the
//!    first, so it counts as delivered. Declare a dedupe window for the destination that is no longer
//!    than the stream's.
//! 2. Delivered: a stream acknowledged. The provider's id is `<stream>:<sequence>`.
//! 3. Retry: no connection; or no stream listens on the subject, or the stream is full: nothing was stored.
//! 4. Refused: larger than the server or the stream takes.
//! 5. Unknown: no acknowledgement in time, or the connection was lost, or the answer cannot be understood.
//!
//! A publisher without the right to publish hears nothing from NATS but an error that names no message, so its
//! delivery ends as unknown; the detail repeats the server's error. NATS cannot be asked about a message id:
//! there is no probe.

mod settings;

use std::error::Error as _;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::header::{HeaderMap, HeaderValue, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::jetstream::context::{Context, ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Event, connect_with_options};
use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Ending, Probed};
use tokio::sync::watch;

use super::broker::{Session, SettingsError, Slot, delivered, provide_tls, retry, told, unknown};
pub use settings::NatsSettings;

/// Carries messages to one subject of NATS JetStream.
pub struct NatsCarrier {
    settings: NatsSettings,
    slot: Slot<Line>,
}

/// A connection. The client would reconnect by itself; ours is used up once it is lost, so that nothing
/// is published behind a delivery that has already ended.
struct Line {
    context: Context,
    is_lost: watch::Receiver<bool>,
    /// The last error the server sent; it names no message.
    complaint: Arc<Mutex<Option<String>>>,
}

impl Session for Line {
    fn is_open(&self) -> bool {
        !*self.is_lost.borrow()
    }
}

impl NatsCarrier {
    /// Checks the settings; connects at the first delivery.
    pub fn new(settings: NatsSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        let slot = Slot::new(settings.timeout);
        Ok(Self { settings, slot })
    }

    async fn deliver(&self, message: &ClaimedMessage) -> Delivery {
        let Ok(headers) = self.headers(message) else {
            return Delivery::new(
                Ending::Refused,
                "the content type cannot be written as a header",
            );
        };
        let line = match self.slot.get(|| self.connect()).await {
            Ok(line) => line,
            Err(delivery) => return delivery,
        };
        let subject = self.settings.subject.clone();
        let payload = message.payload.clone();
        let published = line.context.publish_with_headers(subject, headers, payload).await;
        let acknowledged = match published {
            Ok(acknowledged) => acknowledged,
            // Not handed to the connection yet: nothing was sent.
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                return Delivery::new(Ending::Refused, told(&error));
            }
            Err(error) => return retry(told(&error)),
        };
        let mut is_lost = line.is_lost.clone();
        let ended = tokio::select! {
            // An acknowledgement that came before the connection went counts.
            biased;
            answer = acknowledged.into_future() => interpret(answer),
            _ = is_lost.wait_for(|is_lost| *is_lost) => Err(unknown("the connection was lost")),
        };
        match ended {
            Ok(ack) => {
                let detail = if ack.duplicate { "stored before" } else { "stored" };
                delivered(Some(format!("{}:{}", ack.stream, ack.sequence)), detail)
            }
            Err(mut delivery) => {
                if delivery.ending == Ending::Unknown {
                    self.slot.forget(&line);
                    if let Some(complaint) = line.complaint() {
                        delivery.detail =
                            format!("{}; the server said: {complaint}", delivery.detail);
                    }
                }
                delivery
            }
        }
    }

    fn headers(
        &self,
        message: &ClaimedMessage,
    ) -> Result<HeaderMap, async_nats::header::ParseHeaderValueError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, HeaderValue::from_str(&message.wire_key())?);
        headers.insert("Content-Type", HeaderValue::from_str(&message.content_type)?);
        if let Some(stream) = &self.settings.stream {
            headers.insert(NATS_EXPECTED_STREAM, HeaderValue::from_str(stream)?);
        }
        Ok(headers)
    }

    async fn connect(&self) -> Result<Line, String> {
        provide_tls();
        let (lost, is_lost) = watch::channel(false);
        let lost = Arc::new(lost);
        let complaint = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&complaint);
        let servers = self.settings.servers().map_err(|error| error.to_string())?;
        let options = self.settings.options().map_err(|error| error.to_string())?;
        let options = options
            // It cannot be told never to reconnect; one look at each server, then it ends, and with it
            // what still waits to be sent.
            .max_reconnects(servers.len())
            .ignore_discovered_servers()
            .event_callback(move |event| {
                let (lost, heard) = (Arc::clone(&lost), Arc::clone(&heard));
                async move {
                    match event {
                        Event::Disconnected | Event::Closed => drop(lost.send_replace(true)),
                        Event::ServerError(error) => {
                            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                            *heard = Some(error.to_string());
                        }
                        Event::Connected
                        | Event::LameDuckMode
                        | Event::Draining
                        | Event::SlowConsumer(_)
                        | Event::ClientError(_) => {}
                    }
                }
            });
        let client = connect_with_options(servers, options).await.map_err(|error| told(&error))?;
        let context = ContextBuilder::new()
            .timeout(self.settings.timeout)
            .ack_timeout(self.settings.timeout)
            .build(client);
        Ok(Line { context, is_lost, complaint })
    }
}

impl Line {
    fn complaint(&self) -> Option<String> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the meaning of an answer, or of its absence.
fn interpret(answer: Result<PublishAck, PublishError>) -> Result<PublishAck, Delivery> {
    let error = match answer {
        // The answer of a stranger who listens on the subject may look like anything.
        Ok(ack) if ack.stream.is_empty() || ack.sequence == 0 => {
            return Err(unknown("the acknowledgement names no stream and sequence"));
        }
        Ok(ack) => return Ok(ack),
        Err(error) => error,
    };
    if error.kind() == PublishErrorKind::StreamNotFound {
        return Err(retry("no stream listens on the subject"));
    }
    let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    let Some(said) = said else { return Err(unknown(told(&error))) };
    // The server said no before it stored anything; of other errors that is not certain.
    match said.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Err(Delivery::new(Ending::Refused, said.to_string()))
        }
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::STREAM_NOT_MATCH
        | ErrorCode::STREAM_SEALED => Err(retry(said.to_string())),
        // Also said of a disk that failed half-way; only a full stream is certain.
        ErrorCode::STREAM_STORE_FAILED if said.to_string().contains("maximum") => {
            Err(retry(said.to_string()))
        }
        _ => Err(unknown(said.to_string())),
    }
}

impl Carrier for NatsCarrier {
    fn carry<'a>(&'a self, message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.deliver(message))
    }

    fn probe<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        None
    }
}

impl fmt::Debug for NatsCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsCarrier").field("settings", &self.settings).finish_non_exhaustive()
    }
}
