//! `firstwrite keys show`: one record, and what operators did to it.

use std::fmt::Write as _;

use firstwrite_core::{
    Audited, Body, Found, Outcome, RecordId, State, Store, StoreErrorKind, Timestamp,
};
use serde::Serialize;

use super::view::{self, RecordView};
use crate::command::{Exit, ShowFlags};
use crate::output::{self, Format, printable};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Shown {
    /// `null` if nothing stands under the key.
    record: Option<RecordView>,
    outcome: Option<OutcomeView>,
    audit: Vec<AuditView>,
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

/// What an operator did, and why.
#[derive(Debug, Serialize)]
pub(crate) struct AuditView {
    at: String,
    actor: String,
    action: String,
    reason: String,
}

pub(super) async fn run(
    store: &dyn Store,
    flags: &ShowFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let id = RecordId::of(&flags.tenant, &flags.key);
    let found = store.get(id).await?;
    let now = match &found {
        Some(found) => found.now,
        None => store.now().await?,
    };
    let shown = Shown {
        record: found.as_ref().map(|found| RecordView::of(&found.record)),
        outcome: found.as_ref().and_then(outcome).map(|kept| OutcomeView::of(kept, flags.body)),
        audit: store.audits(id).await?.iter().map(AuditView::of).collect(),
    };
    match format {
        Format::Json => output::document(&shown)?,
        Format::Table => {
            output::data(&shown.for_people(found.as_ref().map(|found| &found.record.state), now))?;
        }
    }
    if found.is_none() {
        let checked = store.check_history(id).await;
        output::note(match checked {
            Err(error) if error.kind() == StoreErrorKind::InDoubt => {
                "nothing stands under this key, but the store has lost history: it may have been used; see \
                 `firstwrite doctor`"
            }
            Ok(()) | Err(_) => {
                "nothing stands under this key: it was never used, was released, or expired"
            }
        });
        return Ok(Exit::Absent);
    }
    Ok(Exit::Done)
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
        let body_hex = wanted.filter(|_| body.is_none()).map(|bytes| hex(bytes));
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

impl Shown {
    fn for_people(&self, state: Option<&State>, now: Timestamp) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name:<11} {}", printable(value)).expect("writing to a string");
        };
        if let (Some(record), Some(state)) = (&self.record, state) {
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
            line("expires", &view::expiry(state, now));
        }
        if let Some(outcome) = &self.outcome {
            line("status", &outcome.status.to_string());
            for header in &outcome.headers {
                line("header", &format!("{}: {}", header.name, header.value));
            }
            match (&outcome.body, &outcome.body_hex, outcome.body_bytes) {
                (Some(body), _, _) => line("body", body),
                (None, Some(hex), _) => line("body (hex)", hex),
                (None, None, Some(0)) => line("body", "empty"),
                (None, None, Some(bytes)) => {
                    line("body", &format!("{bytes} bytes; add --body to see them"));
                }
                (None, None, None)
                    if self.record.as_ref().is_some_and(|r| r.state == "released") =>
                {
                    line("note", "the attempt failed with this status; its key is free");
                }
                (None, None, None) => line("body", "not kept: over the cap, or a stream"),
            }
        }
        for entry in &self.audit {
            line("audit", &entry.for_people());
        }
        text
    }
}

/// Bytes that are not text, in a form that can be printed.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}
