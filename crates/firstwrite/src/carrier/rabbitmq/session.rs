//! A connection to RabbitMQ and its channels.

use std::sync::{Mutex, PoisonError};

use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use super::RabbitmqSettings;
use crate::carrier::broker::{Session, told};

/// A connection.
///
/// Each delivery has a channel to itself. What the server says about a channel then is about that one
/// message; with several on a channel, the client hands a message that came back to whichever
/// confirmation comes next, and a channel that is closed names none of them.
pub(super) struct Line {
    connection: Connection,
    /// Channels without a message on them.
    idle: Mutex<Vec<Channel>>,
}

impl Line {
    pub(super) async fn connect(settings: &RabbitmqSettings) -> Result<Self, String> {
        let uri = settings.uri().map_err(|error| error.to_string())?;
        // Without recovery: what was published is never published again behind our back.
        let properties = ConnectionProperties::default().with_connection_name("firstwrite".into());
        let connection =
            Connection::connect_uri(uri, properties).await.map_err(|error| told(&error))?;
        Ok(Self { connection, idle: Mutex::default() })
    }

    /// Returns true if the server reported that it takes no messages for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// A channel that confirms and has nothing on it. Nothing is published if it fails.
    pub(super) async fn channel(&self, settings: &RabbitmqSettings) -> Result<Channel, String> {
        while let Some(channel) = self.take() {
            if channel.status().connected() {
                return Ok(channel);
            }
        }
        let channel = self.connection.create_channel().await.map_err(|error| told(&error))?;
        if !settings.exchange.is_empty() {
            // A message to an exchange that is not there closes the channel: better asked before.
            let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
            let (name, kind) = (settings.exchange.as_str().into(), ExchangeKind::Direct);
            let found = channel.exchange_declare(name, kind, options, FieldTable::default()).await;
            found.map_err(|error| told(&error))?;
        }
        let options = ConfirmSelectOptions::default();
        channel.confirm_select(options).await.map_err(|error| told(&error))?;
        Ok(channel)
    }

    /// Takes back a channel whose message has been confirmed.
    pub(super) fn keep(&self, channel: Channel) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    fn take(&self) -> Option<Channel> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Session for Line {
    fn is_open(&self) -> bool {
        self.connection.status().connected()
    }
}
