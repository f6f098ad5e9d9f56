//! Carries messages to RabbitMQ: publishes a persistent message, confirmed once its queues have it.
//!
//! 1. `message_id` is the wire key, for the consumer to recognise a repetition by. RabbitMQ itself
//!    recognises none: its dedupe window is zero, so a delivery whose confirmation was lost is not
//!    repeated by itself.
//! 2. Delivered: confirmed. There is no provider's id, since RabbitMQ gives none.
//! 3. Retry: no connection, no exchange, no right to publish, or memory or disk short; or no queue is
//!    bound (the message is published as `mandatory` and comes back); or the one queue did not take it.
//! 4. Refused: larger than the server takes.
//! 5. Unknown: no confirmation in time, or the connection was lost before it; or it was taken by some of
//!    several queues only, see [`RabbitmqSettings::reaches_one_queue`].
//!
//! There is no probe: RabbitMQ cannot be asked about a message.
//!
//! The client library logs a message that comes back, payload included, as a warning of the target
//! `lapin::returned_messages`. Switch that target off where payloads must not be logged.

mod session;
mod settings;

use std::fmt;
use std::sync::Arc;

use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Ending, Probed};
use lapin::options::BasicPublishOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Error, ErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::broker::{SettingsError, Slot, delivered, provide_tls, retry, told, unknown};
use session::Line;
pub use settings::RabbitmqSettings;

/// AMQP's word for a message that is written to disk.
const PERSISTENT: u8 = 2;

/// Carries messages to one exchange and routing key of RabbitMQ.
pub struct RabbitmqCarrier {
    settings: RabbitmqSettings,
    slot: Slot<Line>,
    /// One permit for each channel that there may be.
    channels: Semaphore,
}

impl RabbitmqCarrier {
    /// Checks the settings; connects at the first delivery.
    pub fn new(settings: RabbitmqSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        let slot = Slot::new(settings.timeout);
        let channels = Semaphore::new(usize::from(settings.channel_max));
        Ok(Self { settings, slot, channels })
    }

    async fn deliver(&self, message: &ClaimedMessage) -> Delivery {
        let Ok(properties) = properties(message) else {
            return Delivery::new(
                Ending::Refused,
                "the content type is longer than the 255 bytes AMQP takes",
            );
        };
        let mut line = None;
        let ready = timeout(self.settings.timeout, self.prepare(&mut line)).await;
        let (_turn, line, channel) = match ready {
            Ok(Ok(ready)) => ready,
            Ok(Err(delivery)) => return delivery,
            Err(_) => {
                if let Some(line) = line {
                    self.slot.forget(&line);
                }
                return retry("the server opens no channel in time");
            }
        };
        let publishing = self.publish(&channel, message, properties);
        let Ok(published) = timeout(self.settings.timeout, publishing).await else {
            self.slot.forget(&line);
            return unknown(format!("no confirmation in {} ms", self.settings.timeout.as_millis()));
        };
        match published {
            Ok(confirmation) => {
                line.keep(channel);
                self.interpret(confirmation, message)
            }
            Err(error) => failed(&error),
        }
    }

    /// A channel to publish on, once it is this delivery's turn; puts the connection into `line` as soon
    /// as it is known. Nothing is published here.
    async fn prepare(
        &self,
        line: &mut Option<Arc<Line>>,
    ) -> Result<(SemaphorePermit<'_>, Arc<Line>, Channel), Delivery> {
        let permit = self.channels.acquire().await.map_err(|closed| retry(closed.to_string()))?;
        let connect = async || {
            provide_tls();
            Line::connect(&self.settings).await
        };
        let line = line.insert(self.slot.get(connect).await?);
        if line.is_blocked() {
            // The client would hold it back, and send it when this delivery is long over.
            let mut delivery = retry("the server takes no messages: its memory or disk is short");
            delivery.is_overloaded = true;
            return Err(delivery);
        }
        let channel = line.channel(&self.settings).await.map_err(retry)?;
        Ok((permit, Arc::clone(line), channel))
    }

    async fn publish(
        &self,
        channel: &Channel,
        message: &ClaimedMessage,
        properties: BasicProperties,
    ) -> Result<Confirmation, Error> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let exchange = self.settings.exchange.as_str().into();
        let routing_key = self.settings.routing_key.as_str().into();
        let payload = &message.payload;
        let sent =
            channel.basic_publish(exchange, routing_key, options, payload, properties).await?;
        sent.await
    }

    /// Returns the meaning of the server's confirmation.
    fn interpret(&self, confirmation: Confirmation, message: &ClaimedMessage) -> Delivery {
        let (is_ack, returned) = match confirmation {
            Confirmation::Ack(returned) => (true, returned),
            Confirmation::Nack(returned) => (false, returned),
            Confirmation::NotRequested => return unknown("the channel confirms nothing"),
        };
        if let Some(returned) = returned {
            let id = returned.delivery.properties.message_id().as_ref().map(ShortString::as_str);
            if id != Some(message.wire_key().as_str()) {
                return unknown("another message came back in its place");
            }
            return retry(format!(
                "came back: {} ({}); bind a queue for the routing key `{}`",
                returned.reply_text, returned.reply_code, self.settings.routing_key
            ));
        }
        match (is_ack, self.settings.reaches_one_queue) {
            (true, _) => delivered(None, "confirmed"),
            (false, true) => retry("the queue did not take it"),
            // The others may have it: a repetition would be a second message there.
            (false, false) => unknown("not every queue took it"),
        }
    }
}

fn properties(message: &ClaimedMessage) -> Result<BasicProperties, lapin::types::ShortStringError> {
    Ok(BasicProperties::default()
        .with_message_id(ShortString::try_new(message.wire_key())?)
        .with_content_type(ShortString::try_new(message.content_type.as_str())?)
        .with_delivery_mode(PERSISTENT))
}

/// Returns the result where a message was published and its channel or connection ended without a confirmation.
fn failed(error: &Error) -> Delivery {
    let text = told(error);
    let ErrorKind::ProtocolError(said) = error.kind() else { return unknown(text) };
    // The server closes a channel over one command. Ours has one message on it, so it is this one.
    let AMQPErrorKind::Soft(kind) = said.kind() else { return unknown(text) };
    match kind {
        AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED => retry(text),
        AMQPSoftError::CONTENTTOOLARGE => Delivery::new(Ending::Refused, text),
        AMQPSoftError::PRECONDITIONFAILED if text.contains("message size") => {
            Delivery::new(Ending::Refused, text)
        }
        AMQPSoftError::PRECONDITIONFAILED
        | AMQPSoftError::RESOURCELOCKED
        | AMQPSoftError::NOROUTE
        | AMQPSoftError::NOCONSUMERS => unknown(text),
    }
}

impl Carrier for RabbitmqCarrier {
    fn carry<'a>(&'a self, message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.deliver(message))
    }

    fn probe<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        None
    }
}

impl fmt::Debug for RabbitmqCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitmqCarrier").field("settings", &self.settings).finish_non_exhaustive()
    }
}
