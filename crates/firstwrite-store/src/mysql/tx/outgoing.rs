//! Messages of a handler, kept until they are written with its outcome.

use std::collections::HashSet;

use firstwrite_core::{Message, StoreError, Tenant};

use super::super::fault::unsupported;
use super::super::flight::Flight;
use super::super::outbox::enqueue::{check, put, put_tallies};

/// Maximum number of messages of a transaction. A handler that needs more should combine them.
const COUNT_MAX: usize = 1000;

/// Maximum size of the messages in one pipeline; further ones are sent ahead in the same transaction.
const FLIGHT_BYTES_MAX: usize = 1024 * 1024;

const DOING: &str = "enqueuing a message";

/// Messages that wait for the commit.
#[derive(Default)]
pub(super) struct Outgoing {
    messages: Vec<Message>,
    identities: HashSet<(Tenant, String)>,
}

impl Outgoing {
    pub(super) fn push(&mut self, message: &Message) -> Result<(), StoreError> {
        if self.messages.len() >= COUNT_MAX {
            return Err(unsupported(DOING, "a transaction takes at most 1000 messages"));
        }
        check(message)?;
        let identity = (message.tenant().clone(), message.derived_key().to_owned());
        if !self.identities.insert(identity) {
            return Err(unsupported(
                DOING,
                "the step was enqueued before in this transaction; name each message's step apart",
            ));
        }
        self.messages.push(message.clone());
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the pipelines that write all messages, beginning with `first`. The caller appends to the
    /// last.
    pub(super) fn flights(&self, first: Flight) -> Vec<Flight> {
        let mut flights = vec![first];
        let mut last = flights.pop().unwrap_or_default();
        for message in &self.messages {
            if last.bytes() > FLIGHT_BYTES_MAX {
                flights.push(std::mem::take(&mut last));
            }
            put(&mut last, message);
        }
        put_tallies(&mut last, &self.messages);
        flights.push(last);
        flights
    }
}
