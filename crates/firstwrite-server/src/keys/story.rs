//! Everything about one record: its state, why its outcome is uncertain, the keys sent upstream, its messages
//! and their deliveries, and what operators did to it.

use std::fmt::Write as _;

use firstwrite_core::codec::hex;
use firstwrite_core::outbox::{MessageView, wire_key};
use firstwrite_core::{AuditEntry, Audited, Body, Found, Outcome, Record, RecordId, State, Store};
use serde::Serialize;

use super::upstream::{self, Known, UpstreamKey};
use super::view::{self, RecordView};
use crate::outbox::DeliveryDocument;
use crate::output::printable;

/// The document of `--format json`.
#[derive(Debug, Serialize)]
pub(super) struct Story {
    /// `null` if nothing stands under the key.
    record: Option<RecordView>,
    /// While uncertain: why the outcome of the attempt is unknown.
    uncertain_because: Option<String>,
    /// While uncertain or reserved: the keys by which the API behind a gateway may know the request.
    upstream_keys: Vec<UpstreamKey>,
    outcome: Option<OutcomeView>,
    messages: Vec<MessageOfRecord>,
    audit: Vec<AuditView>,
    /// Text that says when its answer or lease ends.
    #[serde(skip)]
    expiry: Option<String>,
}

/// A message of the record.
#[derive(Debug, Serialize)]
struct MessageOfRecord {
    number: i64,
    /// Key by which the destination knows it.
    wire_key: String,
    destination: String,
    state: &'static str,
    delivery_count: u32,
    problem: Option<String>,
    deliveries: Vec<DeliveryDocument>,
}

#[derive(Debug, Serialize)]
struct OutcomeView {
    status: u16,
    headers: Vec<HeaderView>,
    /// `null` if the body was too large to keep.
    body_bytes: Option<usize>,
    /// With `--body`, if the body is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// With `--body`, if the body is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

#[derive(Debug, Serialize)]
struct HeaderView {
    name: String,
    value: String,
}

/// Action of an operator or of the software, and its reason.
#[derive(Debug, Serialize)]
pub(crate) struct AuditView {
    at: String,
    actor: String,
    action: String,
    reason: String,
}

impl Story {
    /// Gathers everything known of the record under `id`, which may be gone. `known`: the setting of its gateway, if
    /// that is known.
    pub(super) async fn of(
        store: &dyn Store,
        id: RecordId,
        found: Option<&Found>,
        with_body: bool,
        known: Option<Known>,
    ) -> anyhow::Result<Self> {
        let audits = store.audits(id).await?;
        let record = found.map(|found| &found.record);
        Ok(Self {
            record: record.map(RecordView::of),
            uncertain_because: record.and_then(|record| why(record, &audits)),
            upstream_keys: record.map_or_else(Vec::new, |record| upstream::of(record, known)),
            outcome: found.and_then(outcome).map(|kept| OutcomeView::of(kept, with_body)),
            messages: messages(store, id).await?,
            audit: audits.iter().map(AuditView::of).collect(),
            expiry: found.map(|found| view::expiry(&found.record.state, found.now)),
        })
    }

    pub(super) fn for_people(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name:<11} {}", printable(value)).expect("writing to a string");
        };
        if let (Some(record), Some(expiry)) = (&self.record, &self.expiry) {
            line("tenant", &record.tenant);
            line("key", &record.key);
            line("state", record.state);
            line("operation", &record.operation);
            line("record id", &record.record_id);
            line("attempt", &record.attempt.to_string());
            line("created", &record.created_at);
            if let Some(since) = &record.uncertain_since {
                line("uncertain", &format!("since {since}"));
            }
            if let Some(why) = &self.uncertain_because {
                line("because", why);
            }
            if let Some(keys) = upstream::for_people(&self.upstream_keys) {
                line("upstream", &keys);
            }
            line("expires", expiry);
        }
        if let Some(outcome) = &self.outcome {
            outcome.tell(self.record.as_ref(), &mut line);
        }
        for message in &self.messages {
            line("message", &message.for_people());
            for past in &message.deliveries {
                line("  delivery", &past.for_people());
            }
        }
        for entry in &self.audit {
            line("audit", &entry.for_people());
        }
        text
    }
}

/// Returns why the outcome of the attempt is unknown, as noted when the attempt was given up.
fn why(record: &Record, audits: &[Audited]) -> Option<String> {
    let State::Uncertain { .. } = record.state else { return None };
    let noted = audits.iter().rev().find(|audited| audited.entry.action == AuditEntry::UNCERTAIN);
    noted.map(|audited| audited.entry.reason.clone())
}

async fn messages(store: &dyn Store, id: RecordId) -> anyhow::Result<Vec<MessageOfRecord>> {
    let Some(outbox) = store.outbox() else { return Ok(Vec::new()) };
    let mut messages = Vec::new();
    for seen in firstwrite_core::outbox::protocol::messages_of(outbox, id).await? {
        let story = outbox.message(seen.number).await?;
        let past = story.map(|story| story.deliveries).unwrap_or_default();
        messages.push(MessageOfRecord::of(&seen, past.iter().map(DeliveryDocument::of).collect()));
    }
    Ok(messages)
}

impl MessageOfRecord {
    fn of(seen: &MessageView, deliveries: Vec<DeliveryDocument>) -> Self {
        Self {
            number: seen.number.0,
            wire_key: wire_key(&seen.derived_key, seen.record),
            destination: seen.destination.clone(),
            state: seen.state.as_str(),
            delivery_count: seen.delivery_count,
            problem: seen.problem.clone(),
            deliveries,
        }
    }

    fn for_people(&self) -> String {
        let Self { number, wire_key, destination, state, problem, .. } = self;
        let problem = problem.as_ref().map(|problem| format!(" ({problem})"));
        format!(
            "{number} to {destination}: {state}{}, sent as {wire_key}",
            problem.unwrap_or_default()
        )
    }
}

fn outcome(found: &Found) -> Option<&Outcome> {
    match &found.record.state {
        State::Completed { outcome, .. } => Some(outcome),
        State::Reserved(_) | State::Uncertain { .. } => None,
    }
}

impl OutcomeView {
    fn of(outcome: &Outcome, with_body: bool) -> Self {
        let bytes = match &outcome.body {
            Body::Bytes(bytes) => Some(bytes),
            Body::Tombstone | Body::Sealed(_) | Body::Released => None,
        };
        let wanted = bytes.filter(|_| with_body);
        let body = wanted.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
        let body_hex = wanted.filter(|_| body.is_none()).map(|bytes| hex::encode(bytes));
        let headers = outcome.headers.iter().map(|(name, value)| HeaderView {
            name: name.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        });
        Self {
            status: outcome.status.as_u16(),
            headers: headers.collect(),
            body_bytes: bytes.map(bytes::Bytes::len),
            body,
            body_hex,
        }
    }
}

impl OutcomeView {
    fn tell(&self, record: Option<&RecordView>, line: &mut impl FnMut(&str, &str)) {
        line("status", &self.status.to_string());
        for header in &self.headers {
            line("header", &format!("{}: {}", header.name, header.value));
        }
        match (&self.body, &self.body_hex, self.body_bytes) {
            (Some(body), _, _) => line("body", body),
            (None, Some(hex), _) => line("body (hex)", hex),
            (None, None, Some(0)) => line("body", "empty"),
            (None, None, Some(bytes)) => {
                line("body", &format!("{bytes} bytes; add --body to see them"));
            }
            (None, None, None) if record.is_some_and(|record| record.state == "released") => {
                line("note", "the attempt failed with this status; its key is free");
            }
            (None, None, None) => line("body", "not kept: over the cap, or a stream"),
        }
    }
}

impl AuditView {
    pub(crate) fn of(audited: &Audited) -> Self {
        Self {
            at: view::instant(audited.at),
            actor: audited.entry.actor.clone(),
            action: audited.entry.action.clone(),
            reason: audited.entry.reason.clone(),
        }
    }

    pub(crate) fn for_people(&self) -> String {
        let Self { at, actor, action, reason } = self;
        format!("{at} {action} by {actor}: {reason}")
    }
}
