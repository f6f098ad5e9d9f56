//! `firstwrite outbox show`: one message, its deliveries, and what operators did to it.

use std::fmt::Write as _;

use firstwrite_core::codec::hex;
use firstwrite_core::outbox::{MessageStory, Outbox, PastDelivery};
use serde::Serialize;

use super::view::{self, MessageDocument};
use crate::command::{Exit, OutboxShowFlags};
use crate::keys::{AuditView, instant};
use crate::output::{self, Format, printable};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct StoryDocument {
    /// `null` if there is no such message.
    message: Option<MessageDocument>,
    content_type: Option<String>,
    /// True if the client's interim answer waits for this message.
    is_awaited: bool,
    deliveries: Vec<DeliveryDocument>,
    audit: Vec<AuditView>,
    /// With `--payload`, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// With `--payload`, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

/// Result of one delivery.
#[derive(Debug, Serialize)]
pub(crate) struct DeliveryDocument {
    at: String,
    /// Number of the claim, from 1.
    claim: u64,
    ending: String,
    status: Option<u16>,
    detail: String,
    provider_id: Option<String>,
}

pub(super) async fn run(
    outbox: &dyn Outbox,
    flags: &OutboxShowFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let story = outbox.message(flags.number).await?;
    let document = StoryDocument::of(story.as_ref(), flags.payload);
    match (format, &story) {
        (Format::Json, _) => output::document(&document)?,
        (Format::Table, Some(story)) => output::data(&for_people(&document, story))?,
        (Format::Table, None) => {}
    }
    if story.is_none() {
        output::note("there is no such message: it never was, or was delivered long ago");
        return Ok(Exit::Absent);
    }
    Ok(Exit::Done)
}

impl StoryDocument {
    fn of(story: Option<&MessageStory>, with_payload: bool) -> Self {
        let payload = story.filter(|_| with_payload).map(|story| &story.content.payload);
        let text = payload.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
        let payload_hex = payload.filter(|_| text.is_none()).map(|bytes| hex::encode(bytes));
        let (deliveries, audits) = match story {
            Some(story) => (story.deliveries.as_slice(), story.audits.as_slice()),
            None => (&[][..], &[][..]),
        };
        Self {
            message: story.map(|story| MessageDocument::of(&story.message)),
            content_type: story.map(|story| story.content.content_type.clone()),
            is_awaited: story.is_some_and(|story| story.content.answers.is_some()),
            deliveries: deliveries.iter().map(DeliveryDocument::of).collect(),
            audit: audits.iter().map(AuditView::of).collect(),
            payload: text,
            payload_hex,
        }
    }
}

impl DeliveryDocument {
    pub(crate) fn of(past: &PastDelivery) -> Self {
        Self {
            at: instant(past.at),
            claim: past.fence.count(),
            ending: past.ending.clone(),
            status: past.status,
            detail: past.detail.clone(),
            provider_id: past.provider_id.clone(),
        }
    }

    pub(crate) fn for_people(&self) -> String {
        let Self { at, ending, detail, provider_id, .. } = self;
        let id = provider_id.as_ref().map(|id| format!(" (provider's id {id})"));
        format!("{at} {ending}: {detail}{}", id.unwrap_or_default())
    }
}

fn for_people(document: &StoryDocument, story: &MessageStory) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name:<12} {}", printable(value)).expect("writing to a string");
    };
    let message = &story.message;
    line("number", &message.number.to_string());
    line("destination", &message.destination);
    line("state", message.state.as_str());
    line("tenant", message.tenant.as_str());
    line("key", &message.derived_key);
    line("record id", &message.record.to_string());
    line("created", &instant(message.created_at));
    if let Some(at) = message.due_at {
        line("due", &view::due(at, story.now));
    }
    line("tries", &message.delivery_count.to_string());
    for (name, value) in [
        ("order", message.ordering_key.clone()),
        ("maybe sent", message.maybe_sent_at.map(instant)),
        ("problem", message.problem.clone()),
        ("provider id", message.receipt.as_ref().and_then(|receipt| receipt.provider_id.clone())),
    ] {
        if let Some(value) = value {
            line(name, &value);
        }
    }
    if document.is_awaited {
        line("awaited", "the client's final answer comes with it");
    }
    line("payload", &format!("{} bytes, {}", message.payload_bytes, story.content.content_type));
    for past in &document.deliveries {
        line("delivery", &past.for_people());
    }
    for entry in &document.audit {
        line("audit", &entry.for_people());
    }
    if let Some(payload) = document.payload.as_ref().or(document.payload_hex.as_ref()) {
        line("content", payload);
    }
    text
}
