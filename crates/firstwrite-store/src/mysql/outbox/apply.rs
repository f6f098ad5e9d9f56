//! Applies moves: locks the rows, checks the guard of each, and writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{
    Becomes, ClaimStatus, HistoryRow, MessageNumber, MessageState, Move, MoveGuard, PastEnding,
    Tallies,
};
use firstwrite_core::{Outcome, RecordId, StoreError, Timestamp};

use super::super::pipeline::{Answer, NOW, Pipeline, SendError, Value};
use super::super::pool::{Pool, PooledConnection, take};
use super::super::rows::COMPLETED;
use super::super::swap::put_audit;
use super::{destinations, pending};
use crate::rows;
use crate::rows::Columns as _;

pub(super) const DOING: &str = "moving messages";

/// A message that is to be moved, as it was read.
struct LockedMessage {
    pending: Option<Pending>,
    /// Last ending in its history.
    last: Option<String>,
    /// True if no older message under its ordering key is pending.
    is_oldest: bool,
}

/// See [`firstwrite_core::outbox::Outbox::apply`].
pub(super) async fn apply(
    pool: &Arc<Pool>,
    receipts: &[HistoryRow],
    moves: &[Move],
) -> Result<Vec<ClaimStatus>, StoreError> {
    take!(pool, DOING, |session| apply_once(&mut session, receipts, moves))
}

async fn apply_once(
    session: &mut PooledConnection,
    receipts: &[HistoryRow],
    moves: &[Move],
) -> Result<Vec<ClaimStatus>, SendError> {
    let numbers: BTreeSet<i64> = moves.iter().map(|step| step.number.0).collect();
    let (now, standing) = lock(session, &numbers).await?;
    let mut writing = Pipeline::new();
    for row in receipts {
        put_history(&mut writing, row);
    }
    let mut applying = Applying { writing, tallies: Tallies::default(), now, standing };
    let held: Vec<ClaimStatus> = moves.iter().map(|step| applying.apply_one(step)).collect();
    pending::put_all_tallies(&mut applying.writing, &applying.tallies);
    applying.writing.commit();
    firstwrite_core::crash_point!("mysql-settle-before-commit");
    session.send(&applying.writing).await?;
    firstwrite_core::crash_point!("mysql-settle-after-commit");
    Ok(held)
}

/// Locks messages and reads them. Where one belongs to an order, its destination is locked first, as a claim
/// does it: so no claim puts a successor aside while that is being released.
async fn lock(
    session: &mut PooledConnection,
    numbers: &BTreeSet<i64>,
) -> Result<(Timestamp, HashMap<i64, LockedMessage>), SendError> {
    let (now, answers) = session
        .begin(|pipeline| {
            for number in numbers {
                pipeline.add(
                    "SELECT destination FROM firstwrite_pending \
                     WHERE message = ? AND ordering_key IS NOT NULL",
                    &[Value::Int(*number)],
                );
            }
        })
        .await?;
    // Only a message under an ordering key has others before it.
    let mut ordered = BTreeMap::new();
    for (number, answer) in numbers.iter().zip(&answers) {
        if let Some(row) = answer.rows.first() {
            ordered.insert(*number, row.owned_text(0)?);
        }
    }
    let mut pipeline = Pipeline::new();
    for destination in ordered.values().collect::<BTreeSet<_>>() {
        destinations::lock(&mut pipeline, destination);
    }
    let mut places = Vec::with_capacity(numbers.len());
    for number in numbers {
        let place = pending::lock(&mut pipeline, MessageNumber(*number));
        pipeline.add(
            "SELECT ending FROM firstwrite_deliveries WHERE message = ? \
             ORDER BY fence DESC LIMIT 1",
            &[Value::Int(*number)],
        );
        let oldest = ordered.contains_key(number).then(|| ask_oldest(&mut pipeline, *number));
        places.push((*number, place, oldest));
    }
    if places.is_empty() {
        return Ok((now, HashMap::new()));
    }
    let answers = session.send(&pipeline).await?;
    let mut standing = HashMap::with_capacity(places.len());
    for (number, place, oldest) in places {
        let pending = match answers[place].rows.first().map(|row| rows::pending(row, 0)).transpose()
        {
            Ok(pending) => pending,
            Err(error) => {
                rows::skip(number, error, SendError::from)?;
                None
            }
        };
        let last = answers[place + 1].rows.first().map(|row| row.owned_text(0)).transpose()?;
        let is_oldest = oldest.map_or(Ok(true), |place| is_oldest(&answers[place], number))?;
        standing.insert(number, LockedMessage { pending, last, is_oldest });
    }
    Ok((now, standing))
}

/// The statements of a step, and the state that they are made of.
struct Applying {
    writing: Pipeline,
    tallies: Tallies,
    now: Timestamp,
    standing: HashMap<i64, LockedMessage>,
}

impl Applying {
    fn apply_one(&mut self, step: &Move) -> ClaimStatus {
        let now = self.now;
        let Some(standing) = self.standing.get_mut(&step.number.0) else {
            return ClaimStatus::Lost;
        };
        // Taken, so that a second move of the same message finds it moved.
        let pending = standing.pending.take_if(|pending| pending.is_under(step.guard, now));
        let due = |row: &&HistoryRow| row.is_due(pending.is_some(), standing.last.as_deref());
        if let Some(row) = step.history.as_ref().filter(due) {
            put_history(&mut self.writing, row);
        }
        let Some(pending) = pending else { return ClaimStatus::Lost };
        match &step.becomes {
            Becomes::Pending(draft) => {
                let mut moved = pending.moved(&step.becomes, now);
                // The message of a current claim is the oldest of its order.
                let is_claimed = matches!(step.guard, MoveGuard::Claimed(_));
                if draft.state == MessageState::Waiting && !is_claimed && !standing.is_oldest {
                    moved = moved.due(None);
                }
                pending::update(&mut self.writing, &moved);
            }
            Becomes::Settled(_) => pending::end(&mut self.writing, &pending),
            Becomes::MaybeSent(_) => {
                pending::update(&mut self.writing, &pending.moved(&step.becomes, now));
            }
        }
        let state = step.becomes.state().unwrap_or(pending.state());
        self.tallies.moved(&pending.destination, pending.state().tally(), state.tally());
        if let Some(outcome) = &step.answer {
            replace_interim(&mut self.writing, pending.id, outcome);
        }
        if let Some(entry) = &step.audit {
            put_audit(&mut self.writing, pending.id.as_bytes(), entry);
        }
        ClaimStatus::Current
    }
}

/// Adds the statement that writes a row, if its message is there; see [`HistoryRow`] for two rows of one fence.
fn put_history(pipeline: &mut Pipeline, row: &HistoryRow) {
    let status = Value::from(row.status.map(i64::from));
    let detail = Value::Text(&row.detail);
    let provider_id = Value::from(row.provider_id.as_deref());
    let number = Value::Int(row.number.0);
    pipeline.add(
        "INSERT INTO firstwrite_deliveries (message, fence, at, ending, status, detail, \
         provider_id) SELECT m.message, ?, ?, ?, ?, ?, ? FROM firstwrite_messages m \
         WHERE m.message = ? ON DUPLICATE KEY UPDATE ",
        &[
            Value::Int(row.fence.as_u64().cast_signed()),
            Value::Sql(NOW),
            Value::Text(row.ending.as_str()),
            status,
            detail,
            provider_id,
            number,
        ],
    );
    if row.ending != PastEnding::Delivered {
        pipeline.write("fence = firstwrite_deliveries.fence", &[]);
        return;
    }
    // From left to right: what it said before is asked until it says something else.
    for (column, value) in [
        ("at", Value::Sql(NOW)),
        ("status", status),
        ("detail", detail),
        ("provider_id", provider_id),
    ] {
        pipeline.write(
            &format!(
                "firstwrite_deliveries.{column} = IF(firstwrite_deliveries.ending = 'delivered', \
                 firstwrite_deliveries.{column}, ?), "
            ),
            &[value],
        );
    }
    pipeline.write("firstwrite_deliveries.ending = 'delivered'", &[]);
}

/// Adds the statement that puts `outcome` in the place of the interim one under `id`, if there is one. Its
/// retention begins now.
fn replace_interim(pipeline: &mut Pipeline, id: RecordId, outcome: &Outcome) {
    let last = Outcome { is_interim: false, ..outcome.clone() };
    pipeline.add(
        "UPDATE firstwrite_records SET outcome = ?, \
         retained_until = @firstwrite_now + replay_for, \
         due_at = @firstwrite_now + replay_for + linger_for \
         WHERE id = ? AND state = ? AND ORD(LEFT(outcome, 1)) & 2 = 2",
        &[Value::Bytes(&encode_outcome(&last)), Value::Bytes(id.as_bytes()), Value::Int(COMPLETED)],
    );
}

/// Adds a look at the oldest message under the ordering key of a message.
fn ask_oldest(pipeline: &mut Pipeline, number: i64) -> usize {
    pipeline.add(
        "SELECT MIN(o.message) FROM firstwrite_pending p JOIN firstwrite_pending o \
         ON o.destination = p.destination AND o.ordering_key = p.ordering_key \
         WHERE p.message = ?",
        &[Value::Int(number)],
    )
}

/// Reads the answer to [`ask_oldest`].
fn is_oldest(answer: &Answer, number: i64) -> Result<bool, StoreError> {
    let oldest = answer.rows.first().map_or(Ok(None), |row| row.integer_or_null(0))?;
    Ok(oldest.is_none_or(|oldest| oldest == number))
}
