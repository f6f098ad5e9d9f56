//! `firstwrite keys settle` and `release`: says on an operator's word how a request ended, with an
//! audit entry.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::HeaderMap;
use bytes::Bytes;
use firstwrite_core::outbox::ABSENCE_SHOWS_AFTER;
use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{AuditEntry, Found, HeaderPolicy, Outcome, Policy, RecordId, State, Store};
use serde::Serialize;

use super::view;
use crate::command::{Exit, FindingFlags, ReleaseFlags, SettleFlags};
use crate::config::{UsageError, open_file};
use crate::output::{self, Format};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer {
    record_id: String,
    tenant: String,
    key: String,
    /// `settled`, `released`, `absent`, `completed`, `held`, `too-soon` or `moved`.
    result: &'static str,
    /// What happened or what to do next, in words.
    detail: String,
}

/// What is going to be said about a request.
struct Finding {
    settlement: Settlement,
    action: &'static str,
    /// The result and its words, if it can be written down.
    done: (&'static str, &'static str),
}

const RELEASED: (&str, &str) =
    ("released", "released: the key is free, and the next request with it runs");
const SETTLED: (&str, &str) = ("settled", "settled: every retry is answered with what you gave");

/// Refuses an answer where there is none to give, and headers that no retry may get.
pub(super) fn check(flags: &SettleFlags) -> Result<(), UsageError> {
    let has_answer = !flags.headers.is_empty() || flags.body.is_some() || flags.body_file.is_some();
    if flags.not_happened && has_answer {
        let message = "what did not happen has no answer; leave out --header, --body and \
                       --body-file, or say --status";
        return Err(UsageError::new(message));
    }
    let mut policy = HeaderPolicy::default();
    for (name, _) in &flags.headers {
        if !policy.add(name.clone()) {
            let message = format!("--header: `{name}` is never kept with an answer; leave it out");
            return Err(UsageError::new(message));
        }
    }
    Ok(())
}

/// `firstwrite keys settle`.
pub(super) async fn settle(
    store: &dyn Store,
    flags: &SettleFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let finding = match outcome(flags)? {
        Some(outcome) => Finding {
            settlement: Settlement::Happened { outcome },
            action: "settle: happened",
            done: SETTLED,
        },
        None => Finding {
            settlement: Settlement::NotHappened,
            action: "settle: not happened",
            done: RELEASED,
        },
    };
    write_down(store, &flags.finding, finding, format).await
}

/// `firstwrite keys release`.
pub(super) async fn release(
    store: &dyn Store,
    flags: &ReleaseFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let finding =
        Finding { settlement: Settlement::NotHappened, action: "release", done: RELEASED };
    write_down(store, &flags.finding, finding, format).await
}

/// The answer that retries are to get; `None` if there is none because nothing happened.
fn outcome(flags: &SettleFlags) -> anyhow::Result<Option<Outcome>> {
    let Some(status) = flags.status else { return Ok(None) };
    let (mut policy, mut headers) = (HeaderPolicy::default(), HeaderMap::new());
    for (name, value) in &flags.headers {
        policy.add(name.clone());
        headers.append(name.clone(), value.clone());
    }
    Ok(Some(Outcome::new(status, policy.keep(&headers), body(flags)?)))
}

fn body(flags: &SettleFlags) -> anyhow::Result<Bytes> {
    let bytes_max = Policy::default().response_bytes_max;
    let body = match (&flags.body, &flags.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => {
            let name = path.display();
            let file = open_file(path).with_context(|| format!("cannot open {name}"))?;
            let mut body = Vec::new();
            let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
            file.take(limit)
                .read_to_end(&mut body)
                .with_context(|| format!("cannot read {name}"))?;
            body
        }
        (None, None) => Vec::new(),
    };
    anyhow::ensure!(body.len() <= bytes_max, "the body is over {bytes_max} bytes; leave it out");
    Ok(Bytes::from(body))
}

async fn write_down(
    store: &dyn Store,
    flags: &FindingFlags,
    finding: Finding,
    format: Format,
) -> anyhow::Result<Exit> {
    let Finding { settlement, action, done } = finding;
    let id = RecordId::of(&flags.tenant, &flags.key);
    let force = if flags.force { Force::Yes } else { Force::No };
    let audit = AuditEntry {
        actor: flags.actor.clone().unwrap_or_else(|| "unknown".to_owned()),
        action: action.to_owned(),
        reason: flags.reason.clone(),
    };
    let found = store.get(id).await?;
    let wait = found.as_ref().and_then(|found| too_soon(found, &settlement));
    let (exit, result, detail) = match (found, wait) {
        (Some(_), Some(wait)) if !flags.force => explain_too_soon(wait),
        (Some(Found { record, .. }), _) => {
            explain(&protocol::settle(store, &record, settlement, force, &audit).await?, done)
        }
        (None, _) => explain(&Settled::Absent, done),
    };
    match format {
        Format::Json => output::document(&Answer {
            record_id: id.to_string(),
            tenant: flags.tenant.to_string(),
            key: flags.key.as_str().to_owned(),
            result,
            detail,
        })?,
        Format::Table if exit == Exit::Done => output::data(&format!("{detail}\n"))?,
        Format::Table => output::error(&detail),
    }
    Ok(exit)
}

/// How long to wait before a look that finds nothing proves that nothing happened: what an attempt sent may
/// still be under way when nobody waits for its answer any more. The same holds for a message.
fn too_soon(found: &Found, settlement: &Settlement) -> Option<Duration> {
    let given_up_at = match &found.record.state {
        State::Uncertain { since } => *since,
        State::Reserved(lease) if lease.until <= found.now => lease.until,
        State::Reserved(_) | State::Completed { .. } => return None,
    };
    let wait = given_up_at.plus(ABSENCE_SHOWS_AFTER).since(found.now);
    (matches!(settlement, Settlement::NotHappened) && !wait.is_zero()).then_some(wait)
}

fn explain_too_soon(wait: Duration) -> (Exit, &'static str, String) {
    let detail = format!(
        "what the attempt sent may still be under way: finding nothing proves nothing for another {}; wait, or \
         add --force if you know that nothing can arrive any more",
        view::brief(wait + Duration::from_millis(999))
    );
    (Exit::Held, "too-soon", detail)
}

fn explain(settled: &Settled, done: (&'static str, &str)) -> (Exit, &'static str, String) {
    match settled {
        Settled::Done => (Exit::Done, done.0, done.1.to_owned()),
        Settled::Absent => (
            Exit::Absent,
            "absent",
            "nothing stands under this key; check tenant and key with `firstwrite keys list`"
                .to_owned(),
        ),
        Settled::Moved => (
            Exit::Failed,
            "moved",
            "another attempt took the key in the meantime; look again with `firstwrite keys show`"
                .to_owned(),
        ),
        Settled::AlreadyCompleted => (
            Exit::Completed,
            "completed",
            "the record is completed: its outcome never changes, and every retry gets it"
                .to_owned(),
        ),
        Settled::StillHeld(remaining) => (
            Exit::Held,
            "held",
            format!(
                "an attempt still holds the lease for {}; wait, or add --force if you know that \
                 the attempt is dead",
                // Rounded up: whoever waits that long finds the lease gone.
                view::brief(*remaining + Duration::from_millis(999))
            ),
        ),
    }
}
