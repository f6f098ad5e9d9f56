//! Messages of a handler, kept until they are written with its outcome.

use std::collections::HashSet;

use firstwrite_core::{Message, StoreError, Tenant};

use super::super::driver_error::unsupported;
use super::super::outbox::enqueue::{check, put, put_tallies};
use super::super::pipeline::Pipeline;

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
    pub(super) fn pipelines(&self, first: Pipeline) -> Vec<Pipeline> {
        let mut pipelines = vec![first];
        let mut last = pipelines.pop().unwrap_or_default();
        for message in &self.messages {
            if last.bytes() > FLIGHT_BYTES_MAX {
                pipelines.push(std::mem::take(&mut last));
            }
            put(&mut last, message);
        }
        put_tallies(&mut last, &self.messages);
        pipelines.push(last);
        pipelines
    }
}
