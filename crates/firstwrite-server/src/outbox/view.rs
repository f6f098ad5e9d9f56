//! Views of messages for operators: stable field names for machines, short words for people.

use firstwrite_core::Timestamp;
use firstwrite_core::outbox::MessageView;
use serde::Serialize;

use crate::keys::{brief, instant};

/// A message without its payload.
#[derive(Debug, Serialize)]
pub(super) struct MessageDocument {
    pub(super) number: i64,
    pub(super) record_id: String,
    pub(super) tenant: String,
    pub(super) derived_key: String,
    pub(super) destination: String,
    pub(super) ordering_key: Option<String>,
    pub(super) created_at: String,
    pub(super) state: &'static str,
    /// Time at which it is due, while it waits by itself.
    pub(super) due_at: Option<String>,
    /// Number of deliveries that counted.
    pub(super) delivery_count: u32,
    /// Earliest time at which it may have arrived, if it may have.
    pub(super) maybe_sent_at: Option<String>,
    /// The HTTP status of the last delivery that went wrong.
    pub(super) status: Option<u16>,
    pub(super) problem: Option<String>,
    pub(super) provider_id: Option<String>,
    pub(super) payload_bytes: usize,
}

impl MessageDocument {
    pub(super) fn of(message: &MessageView) -> Self {
        let receipt = message.receipt.as_ref();
        Self {
            number: message.number.0,
            record_id: message.record.to_string(),
            tenant: message.tenant.to_string(),
            derived_key: message.derived_key.clone(),
            destination: message.destination.clone(),
            ordering_key: message.ordering_key.clone(),
            created_at: instant(message.created_at),
            state: message.state.as_str(),
            due_at: message.due_at.map(instant),
            delivery_count: message.delivery_count,
            maybe_sent_at: message.maybe_sent_at.map(instant),
            status: message.status,
            problem: message.problem.clone(),
            provider_id: receipt.and_then(|receipt| receipt.provider_id.clone()),
            payload_bytes: message.payload_bytes,
        }
    }
}

/// Describes when something is due, relative to `now`.
pub(super) fn due(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        format!("since {}", brief(now.since(at)))
    } else {
        format!("in {}", brief(at.since(now)))
    }
}
