//! `firstwrite keys settle` and `release`: says on an operator's word how a request ended, with an
//! audit entry.

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::HeaderMap;
use bytes::Bytes;
use firstwrite_core::outbox::ABSENCE_SHOWS_AFTER;
use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{
    AuditEntry, Body, Found, HeaderPolicy, Outcome, Policy, RecordId, State, Store,
};
use firstwrite_store::Access;
use serde::Serialize;

use super::story::Story;
use super::upstream::Known;
use super::view;
use crate::actor;
use crate::command::{Exit, FindingFlags, ReleaseFlags, SettleFlags};
use crate::config::{UsageError, open_file};
use crate::output::{self, Format};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer {
    record_id: String,
    tenant: String,
    key: String,
    /// `settled`, `released`, `absent`, `completed`, `held`, `too-soon`, `lost`, `moved` or `not-confirmed`.
    result: &'static str,
    /// Text that says what happened, or what to do next.
    detail: String,
}

/// Settlement that the operator asked for.
struct Finding {
    settlement: Settlement,
    action: &'static str,
    /// Result and text to report if the settlement is written.
    done: (&'static str, &'static str),
}

const RELEASED: (&str, &str) =
    ("released", "released: the key is free, and the next request with it runs");
const SETTLED: (&str, &str) = ("settled", "settled: every retry is answered with what you gave");

/// Text for a settlement that was not confirmed.
const NOT_CONFIRMED: &str =
    "nothing was changed; if that is what is to be done, add --yes to write it down";

/// A look beside a running service is enough where nothing will be written.
pub(super) fn access(flags: &FindingFlags) -> Access {
    if flags.yes || output::can_ask() { Access::Write } else { Access::ReadOnly }
}

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
    known: Option<Known>,
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
    write_down(store, &flags.finding, finding, format, known).await
}

/// `firstwrite keys release`.
pub(super) async fn release(
    store: &dyn Store,
    flags: &ReleaseFlags,
    format: Format,
    known: Option<Known>,
) -> anyhow::Result<Exit> {
    let finding =
        Finding { settlement: Settlement::NotHappened, action: "release", done: RELEASED };
    write_down(store, &flags.finding, finding, format, known).await
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
    known: Option<Known>,
) -> anyhow::Result<Exit> {
    let Finding { settlement, action, done } = finding;
    let id = RecordId::of(&flags.tenant, &flags.key);
    let force = if flags.force { Force::Yes } else { Force::No };
    let audit = AuditEntry {
        actor: actor::name(flags.actor.as_deref()),
        action: action.to_owned(),
        reason: flags.reason.clone(),
    };
    let found = store.get(id).await?;
    let (exit, result, detail) = match found {
        None => explain(&Settled::Absent, done),
        Some(found) => match obstacle(&found, &settlement, force) {
            Some(obstacle) => obstacle,
            None if !confirmed(store, &found, &settlement, flags, known).await? => {
                (Exit::Usage, "not-confirmed", NOT_CONFIRMED.to_owned())
            }
            None => {
                let settled =
                    protocol::settle(store, &found.record, settlement, force, &audit).await?;
                explain(&settled, done)
            }
        },
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

/// Returns the reason why the settlement is not possible, as far as that is known before asking for confirmation.
fn obstacle(
    found: &Found,
    settlement: &Settlement,
    force: Force,
) -> Option<(Exit, &'static str, String)> {
    if let State::Completed { outcome, .. } = &found.record.state {
        let is_free = outcome.is_release_note();
        let settled = if is_free { Settled::Absent } else { Settled::AlreadyCompleted };
        return Some(explain(&settled, SETTLED));
    }
    if force == Force::Yes {
        return None;
    }
    if let State::Reserved(lease) = &found.record.state
        && found.now < lease.until
    {
        return Some(explain(&Settled::StillHeld(lease.until.since(found.now)), SETTLED));
    }
    too_soon(found, settlement).map(explain_too_soon)
}

/// Shows what would be changed, and asks for confirmation if a person is at the terminal.
async fn confirmed(
    store: &dyn Store,
    found: &Found,
    settlement: &Settlement,
    flags: &FindingFlags,
    known: Option<Known>,
) -> anyhow::Result<bool> {
    if flags.yes {
        return Ok(true);
    }
    output::note(&preview(store, found, settlement, known).await?);
    if output::can_ask() { output::ask("Write that down? It cannot be undone.") } else { Ok(false) }
}

async fn preview(
    store: &dyn Store,
    found: &Found,
    settlement: &Settlement,
    known: Option<Known>,
) -> anyhow::Result<String> {
    let story = Story::of(store, found.record.id, Some(found), false, known).await?;
    let stands = story.for_people();
    let becomes = match settlement {
        Settlement::NotHappened => "the key is free, and the next request with it runs".to_owned(),
        Settlement::Happened { outcome } => {
            let bytes = match &outcome.body {
                Body::Bytes(bytes) => bytes.len(),
                Body::Tombstone | Body::Sealed(_) | Body::Released => 0,
            };
            let mut text =
                format!("every retry is answered with {} and {bytes} bytes", outcome.status);
            for (name, value) in outcome.headers.iter() {
                let value = String::from_utf8_lossy(value.as_bytes());
                let value = output::printable(&value);
                write!(text, "\n            {name}: {value}").expect("writing to a string");
            }
            text
        }
    };
    Ok(format!("{stands}would be    {becomes}"))
}

/// Returns the time until a missing effect proves that nothing happened: a request that an attempt sent may
/// still be under way after the attempt has stopped waiting for its answer. The same holds for a message.
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
        Settled::HistoryLost => (
            Exit::Held,
            "lost",
            "the store lost history, and an attempt that it does not know of may be under way: finding nothing \
             proves nothing; clear the loss first (`firstwrite doctor --clear-history-loss`), or add --force"
                .to_owned(),
        ),
        Settled::StillHeld(remaining) => (
            Exit::Held,
            "held",
            format!(
                "an attempt still holds the lease for {}; wait, or add --force if you know that \
                 the attempt is dead",
                // Rounded up, so that the lease has ended after that wait.
                view::brief(*remaining + Duration::from_millis(999))
            ),
        ),
    }
}
