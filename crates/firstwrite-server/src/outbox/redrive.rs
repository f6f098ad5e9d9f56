//! `firstwrite outbox redrive`: puts dead letters back, to be delivered again.

use firstwrite_core::AuditEntry;
use firstwrite_core::outbox::{Counted, MessageQuery, MessageState, Outbox, protocol};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::actor;
use crate::command::{Exit, RedriveFlags};
use crate::output::{self, Format, Progress};

/// Largest batch. Each message takes two small writes, and a batch should end quickly.
const BATCH_MAX: usize = 100;

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Answer {
    /// Number of dead letters that matched before the redrive.
    matching: usize,
    /// True if there are more than `matching`, where counting stopped.
    is_more: bool,
    /// Number of dead letters that were put back; 0 without `--yes`.
    redriven: usize,
    /// True if all matching dead letters were put back.
    is_done: bool,
}

pub(super) async fn run(
    outbox: &dyn Outbox,
    flags: &RedriveFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let query = MessageQuery {
        destination: flags.destination.clone(),
        state: Some(MessageState::Dead),
        tenant: flags.tenant.clone(),
        problem: flags.problem.clone(),
        ..MessageQuery::default()
    };
    let counted = protocol::count(outbox, &query).await?;
    let redriven = match (flags.yes, &flags.reason) {
        (true, Some(reason)) => {
            let by = AuditEntry {
                actor: actor::name(flags.actor.as_deref()),
                action: "redrive".to_owned(),
                reason: reason.clone(),
            };
            put_back(outbox, query, counted, flags, &by).await?
        }
        _ => 0,
    };
    say(counted, redriven, flags, format)?;
    Ok(Exit::Done)
}

/// Puts back what matches, oldest first, at the rate that was asked for.
///
/// It goes through the messages once: one that dies again meanwhile is not put back again.
async fn put_back(
    outbox: &dyn Outbox,
    mut query: MessageQuery,
    counted: Counted,
    flags: &RedriveFlags,
    by: &AuditEntry,
) -> anyhow::Result<usize> {
    query.limit = flags.rate.batch(BATCH_MAX);
    let began_at = Instant::now();
    let mut progress = Progress::new("dead letters put back", counted.count);
    let mut redriven = 0;
    loop {
        let page = protocol::messages(outbox, &query).await?;
        if !page.messages.is_empty() {
            redriven += protocol::redrive(outbox, &query, page.messages.len(), by).await?;
            progress.show(redriven);
        }
        let Some(next) = page.next else { break };
        query.after = Some(next);
        sleep_until(began_at + flags.rate.time_for(redriven)).await;
    }
    progress.end();
    Ok(redriven)
}

fn say(
    counted: Counted,
    redriven: usize,
    flags: &RedriveFlags,
    format: Format,
) -> anyhow::Result<()> {
    let Counted { count: matching, is_more } = counted;
    let is_done = !is_more && redriven >= matching;
    if format == Format::Json {
        return output::document(&Answer { matching, is_more, redriven, is_done });
    }
    let matching = if is_more { format!("more than {matching}") } else { matching.to_string() };
    if flags.yes {
        return output::data(&format!(
            "put back: {redriven} of {matching} dead letters; a worker delivers them\n"
        ));
    }
    output::data(&format!("dead letters that match: {matching}\n"))?;
    output::note(
        "nothing was changed; add --yes and --reason to put them back, to be delivered again under \
         their old keys",
    );
    Ok(())
}
