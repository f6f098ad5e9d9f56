//! `firstwrite outbox settle`: says on an operator's word what became of a message, with an audit
//! entry.

use anyhow::ensure;
use firstwrite_core::outbox::{
    Answers, ClaimStatus, MessageNumber, MessageState, MessageStory, MessageView, Outbox, Receipt,
    Resolution, absence_shows_from, protocol,
};
use firstwrite_core::{Body, Store, StoreErrorKind};
use serde::Serialize;

use crate::command::{Exit, OutboxSettleFlags};
use crate::output::{self, Format};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer {
    number: i64,
    /// `delivered`, `waiting`, `refused`, `dropped`, `absent`, `settled`, `held`, `early`, `lost` or `moved`.
    result: &'static str,
    /// Text that says what happened, or what to do next.
    detail: &'static str,
}

type Verdict = (Exit, &'static str, &'static str);

pub(super) async fn run(
    store: &dyn Store,
    outbox: &dyn Outbox,
    flags: &OutboxSettleFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let (exit, result, detail) = match outbox.message(flags.number).await? {
        Some(story) => settle(store, outbox, &story, flags).await?,
        None => ABSENT,
    };
    match format {
        Format::Json => output::document(&Answer { number: flags.number.0, result, detail })?,
        Format::Table if exit == Exit::Done => output::data(&format!("{detail}\n"))?,
        Format::Table => output::error(detail),
    }
    Ok(exit)
}

const ABSENT: Verdict =
    (Exit::Absent, "absent", "there is no such message; look for it with `firstwrite outbox list`");

const EARLY: Verdict = (
    Exit::Held,
    "early",
    "it may have arrived, and a delivery may still be under way; look again an hour after the last one, \
     or add --force",
);

const LOST: Verdict = (
    Exit::Held,
    "lost",
    "the store lost history, and a delivery that it does not know of may be under way; clear the loss first \
     (`firstwrite doctor --clear-history-loss`), or add --force",
);

/// Returns the refusal if the operator says that a message did not arrive before that can be known.
async fn too_early(
    store: &dyn Store,
    story: &MessageStory,
    resolution: &Resolution,
) -> anyhow::Result<Option<Verdict>> {
    let MessageView { state, maybe_sent_at, handled_at, record, .. } = story.message;
    if let Resolution::Delivered { .. } | Resolution::Dropped = resolution {
        return Ok(None);
    }
    match store.check_history(record).await {
        Ok(()) => {}
        Err(error) if error.kind() == StoreErrorKind::HistoryLost => return Ok(Some(LOST)),
        Err(error) => return Err(error.into()),
    }
    let shows_from = absence_shows_from(state, maybe_sent_at, handled_at);
    Ok(shows_from.filter(|from| story.now < *from).map(|_too_early| EARLY))
}

async fn settle(
    store: &dyn Store,
    outbox: &dyn Outbox,
    story: &MessageStory,
    flags: &OutboxSettleFlags,
) -> anyhow::Result<Verdict> {
    if let Some(verdict) = settled(story.message.state) {
        return Ok(verdict);
    }
    let resolution = resolution(story, flags)?;
    if !flags.force
        && let Some(verdict) = too_early(store, story, &resolution).await?
    {
        return Ok(verdict);
    }
    let (action, verdict) = match &resolution {
        Resolution::Delivered { .. } => (
            "settle: delivered",
            (Exit::Done, "delivered", "settled: it counts as delivered and is not sent again"),
        ),
        Resolution::NotDelivered => (
            "settle: not delivered",
            (Exit::Done, "waiting", "settled: it is sent again as if it never had been"),
        ),
        Resolution::Refused { .. } => (
            "settle: refused",
            (
                Exit::Done,
                "refused",
                "settled: it is never sent, and a client that waits is told so",
            ),
        ),
        // Nothing else says so once the message is gone from what is pending.
        Resolution::Dropped if story.message.maybe_sent_at.is_some() => (
            "settle: drop, though it may have arrived,",
            (
                Exit::Done,
                "dropped",
                "dropped: it is not delivered any more; it may have arrived before",
            ),
        ),
        Resolution::Dropped => {
            ("settle: drop", (Exit::Done, "dropped", "dropped: it is not delivered any more"))
        }
    };
    let (number, seen) = (story.message.number, story.message.fence);
    let by = flags.word.entry(action);
    match protocol::resolve(outbox, number, seen, &resolution, &by).await? {
        ClaimStatus::Current => Ok(verdict),
        ClaimStatus::Lost => why_not(outbox, number).await,
    }
}

fn resolution(story: &MessageStory, flags: &OutboxSettleFlags) -> anyhow::Result<Resolution> {
    if flags.not_delivered {
        return Ok(Resolution::NotDelivered);
    }
    let answers = story.content.answers.as_deref();
    if flags.refused {
        return Ok(Resolution::Refused { answer: answers.map(Answers::when_refused) });
    }
    if flags.drop {
        ensure!(
            answers.is_none(),
            "its client waits for an answer; find out what became of it and add --delivered or --refused"
        );
        return Ok(Resolution::Dropped);
    }
    let receipt = Receipt { provider_id: flags.provider_id.clone() };
    ensure!(
        receipt.provider_id.is_some() || !answers.is_some_and(tells_id),
        "its client is told the provider's id; add --provider-id"
    );
    let answer = answers.map(|answers| answers.when_delivered(&receipt));
    Ok(Resolution::Delivered { receipt, answer })
}

/// Returns true if the final answer has a placeholder for the provider's id.
fn tells_id(answers: &Answers) -> bool {
    match &answers.delivered.body {
        Body::Bytes(bytes) => {
            let place = Answers::PROVIDER_ID.as_bytes();
            bytes.windows(place.len()).any(|part| part == place)
        }
        Body::Tombstone | Body::Sealed(_) | Body::Released => false,
    }
}

/// Returns the reason why the message could not be settled, by its present state.
async fn why_not(outbox: &dyn Outbox, number: MessageNumber) -> anyhow::Result<Verdict> {
    let Some(story) = outbox.message(number).await? else { return Ok(ABSENT) };
    if let Some(verdict) = settled(story.message.state) {
        return Ok(verdict);
    }
    if story.message.state == MessageState::Sending {
        let detail = "a worker is delivering it now; look again with `firstwrite outbox show`";
        return Ok((Exit::Held, "held", detail));
    }
    let detail = "it was delivered again meanwhile; look again with `firstwrite outbox show`";
    Ok((Exit::Failed, "moved", detail))
}

fn settled(state: MessageState) -> Option<Verdict> {
    match state {
        MessageState::Delivered => {
            Some((Exit::Completed, "settled", "it is delivered already, and that never changes"))
        }
        MessageState::Dropped => {
            Some((Exit::Completed, "settled", "it was dropped already, and that never changes"))
        }
        MessageState::Refused => {
            let detail = "it was refused, its client knows, and that never changes";
            Some((Exit::Completed, "settled", detail))
        }
        MessageState::Waiting
        | MessageState::Sending
        | MessageState::Unknown
        | MessageState::Dead => None,
    }
}
