//! Claims due messages under a lease.
//!
//! Claims on one destination take turns by locking its row, so that of two messages under one ordering key
//! never both are taken. A message that is found to wait for another is put aside, and comes back when that
//! one has ended: a long order is not walked by every claim.

use std::collections::HashMap;
use std::sync::Arc;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::pending::Pending;
use firstwrite_core::outbox::{ClaimRequest, Claimed, Gate, MessageState, Receipt};
use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use mysql_async::Row;

use super::super::driver_error::corrupt;
use super::super::history_loss;
use super::super::pipeline::{Answer, NOW, Pipeline, SendError, Value};
use super::super::pool::{Pool, PooledConnection, take};
use super::{destinations, pending};
use crate::rows::Columns as _;
use crate::rows::{self, parts, parts_columns, pending_columns, skip};

const DOING: &str = "claiming messages";

/// Maximum number of messages claimed for one destination in one step.
const CLAIMED_MAX: usize = 256;

/// Number of rows that cannot be read, or wait for others, that a claim passes to reach the ones behind them.
const PASSED_OVER_MAX: usize = 64;

/// Messages that a claim found due for one destination.
struct Offer<'w> {
    request: &'w ClaimRequest,
    count_max: usize,
    is_trial: bool,
    due: Vec<Pending>,
}

/// See [`firstwrite_core::outbox::Outbox::claim`].
pub(super) async fn claim(
    pool: &Arc<Pool>,
    requests: &[ClaimRequest],
    nonce: u64,
) -> Result<Claimed, StoreError> {
    if let Some(refusal) = pool.refusal(DOING) {
        return Err(refusal);
    }
    // All claims lock destinations in the same order, so that they do not deadlock.
    let mut requests: Vec<&ClaimRequest> = requests.iter().collect();
    requests.sort_by(|one, other| one.destination.cmp(&other.destination));
    take!(pool, DOING, |session| claim_once(&mut session, &requests, nonce))
}

async fn claim_once(
    session: &mut PooledConnection,
    requests: &[&ClaimRequest],
    nonce: u64,
) -> Result<Claimed, SendError> {
    let (now, answers) = session
        .begin(|pipeline| {
            pipeline.add(history_loss::STANDS, &[]);
            ask(pipeline, requests);
        })
        .await?;
    // What was delivered since may be among what is missing.
    if history_loss::stands(&answers[0])? {
        return Err(history_loss::refuse(DOING).into());
    }
    let mut claimed = Claimed { messages: Vec::new(), now, closed: Vec::new() };
    let mut offers = Vec::new();
    for (request, answers) in requests.iter().zip(answers[1..].chunks(3)) {
        let gate = gate(&request.destination, &answers[1], now)?;
        let Some(count_max) = gate.room(request.count_max.min(CLAIMED_MAX)) else {
            claimed.closed.push(request.destination.clone());
            continue;
        };
        let is_trial = gate == Gate::Trial;
        let mut due = due(&answers[2])?;
        // A few more than can be taken, in case some are passed over.
        due.truncate(count_max + PASSED_OVER_MAX.min(count_max.saturating_mul(4)));
        offers.push(Offer { request, count_max, is_trial, due });
    }
    let mut writing = Pipeline::new();
    let contents = look_inside(session, &offers).await?;
    for offer in offers {
        let taken_before = claimed.messages.len();
        for pending in offer.due {
            if claimed.messages.len() - taken_before == offer.count_max {
                break;
            }
            let Some(content) = contents.get(&pending.number.0) else {
                skip(pending.number.0, corrupt("a pending message is not there"), SendError::from)?;
                continue;
            };
            if content.is_blocked {
                if pending.state() == MessageState::Waiting {
                    let put_aside = pending.due(None);
                    pending::update(&mut writing, &put_aside);
                }
                continue;
            }
            let pending = pending.claimed(nonce, now, offer.request.lease_for);
            match parts(&content.row, content.receipt.clone()) {
                Ok(parts) => {
                    pending::update(&mut writing, &pending);
                    claimed.messages.push(pending.carried(parts, (offer.is_trial, now)));
                }
                Err(error) => skip(pending.number.0, error, SendError::from)?,
            }
        }
        if offer.is_trial && claimed.messages.len() > taken_before {
            let until = now.plus(offer.request.lease_for);
            destinations::put_open_until(&mut writing, &offer.request.destination, until);
        }
    }
    // A poll that finds nothing writes nothing.
    let counted = (!claimed.messages.is_empty()).then(|| session.slot().count(&mut writing));
    writing.commit();
    firstwrite_core::crash_point!("mysql-claim-before-commit");
    let answers = session.send(&writing).await?;
    firstwrite_core::crash_point!("mysql-claim-after-commit");
    if let Some(place) = counted {
        session.slot().acknowledged(&answers[place])?;
    }
    Ok(claimed)
}

/// Adds three statements for each destination: its lock, its gate, and its due messages.
fn ask(pipeline: &mut Pipeline, requests: &[&ClaimRequest]) {
    for request in requests {
        let destination = Value::Text(&request.destination);
        destinations::lock(pipeline, &request.destination);
        pipeline.add(
            "SELECT paused_at IS NOT NULL, open_until FROM firstwrite_destinations \
             WHERE destination = ?",
            &[destination],
        );
        let row_max = match request.count_max.min(CLAIMED_MAX) {
            0 => 0,
            count => count + PASSED_OVER_MAX,
        };
        let sql = concat!(
            "SELECT ",
            pending_columns!(),
            " FROM firstwrite_pending p WHERE p.destination = ? AND p.due_at <= ? \
             ORDER BY p.due_at, p.message LIMIT ? FOR UPDATE SKIP LOCKED"
        );
        pipeline.add(sql, &[destination, Value::Sql(NOW), Value::Int(as_i64(row_max))]);
    }
}

/// Reads the gate of a destination. One that cannot be read is closed, since it may be paused.
fn gate(destination: &str, answer: &Answer, now: Timestamp) -> Result<Gate, SendError> {
    let read = answer.rows.first().map(|row| destinations::gate(row, now)).transpose();
    match read {
        Ok(gate) => Ok(gate.unwrap_or(Gate::Open)),
        Err(error) if error.kind() == StoreErrorKind::Corrupt => {
            tracing::warn!(destination, %error, "a destination cannot be read");
            Ok(Gate::Closed)
        }
        Err(error) => Err(error.into()),
    }
}

fn due(answer: &Answer) -> Result<Vec<Pending>, SendError> {
    let mut due = Vec::with_capacity(answer.rows.len());
    for row in &answer.rows {
        match rows::pending(row, 0) {
            Ok(pending) => due.push(pending),
            Err(error) => skip(row.integer(0).unwrap_or_default(), error, SendError::from)?,
        }
    }
    Ok(due)
}

/// Parts of a message that a claim reads beyond its pending row.
struct Content {
    row: Row,
    receipt: Option<Receipt>,
    is_blocked: bool,
}

/// Reads the messages that are due, and whether one under the same ordering key goes first: the one that is
/// being sent, unknown or dead, or the oldest.
async fn look_inside(
    session: &mut PooledConnection,
    offers: &[Offer<'_>],
) -> Result<HashMap<i64, Content>, SendError> {
    let mut pipeline = Pipeline::new();
    let mut asked = Vec::new();
    for offer in offers {
        for pending in &offer.due {
            let number = Value::Int(pending.number.0);
            let sql =
                concat!("SELECT ", parts_columns!(), " FROM firstwrite_messages WHERE message = ?");
            let message = pipeline.add(sql, &[number]);
            let receipt = pending.standing.fence.is_some().then(|| {
                pipeline.add(
                    "SELECT provider_id FROM firstwrite_deliveries \
                     WHERE message = ? AND ending = 'delivered' ORDER BY fence LIMIT 1",
                    &[number],
                )
            });
            let order = pending.ordering_key.as_ref().map(|key| {
                let is_waiting = Value::Int((pending.state() == MessageState::Waiting).into());
                pipeline.add(
                    "SELECT EXISTS (SELECT 1 FROM firstwrite_pending q WHERE q.destination = ? \
                     AND q.ordering_key = ? AND q.message <> ? \
                     AND (q.state <> 0 OR (? = 1 AND q.message < ?)))",
                    &[
                        Value::Text(&pending.destination),
                        Value::Bytes(key.as_bytes()),
                        number,
                        is_waiting,
                        number,
                    ],
                )
            });
            asked.push((pending.number.0, message, receipt, order));
        }
    }
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let mut answers: Vec<Answer> = session.send(&pipeline).await?;
    let mut contents = HashMap::with_capacity(asked.len());
    for (number, message, receipt, order) in asked {
        let Some(row) = answers[message].rows.pop() else { continue };
        let receipt = match receipt.and_then(|place| answers[place].rows.first()) {
            Some(row) => Some(Receipt { provider_id: row.owned_text_or_null(0)? }),
            None => None,
        };
        let is_blocked = match order.and_then(|place| answers[place].rows.first()) {
            Some(row) => row.integer(0)? != 0,
            None => false,
        };
        contents.insert(number, Content { row, receipt, is_blocked });
    }
    Ok(contents)
}
