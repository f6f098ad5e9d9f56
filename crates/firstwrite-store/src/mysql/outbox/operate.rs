//! What operators do to messages: put dead letters back, and say how it ended where nobody else can.

use std::collections::BTreeSet;
use std::sync::Arc;

use firstwrite_core::outbox::{Held, MessageNumber, MessageQuery, MessageState, Resolution};
use firstwrite_core::{AuditEntry, Fence, StoreError, Timestamp};

use super::super::flight::{Flight, Value};
use super::super::pool::Pool;
use super::super::rows::{integer, owned_text};
use super::super::session::{Failure, Session, take};
use super::super::swap::put_audit;
use super::destinations;
use super::listing::Filter;
use super::pending::{self, Pending, Phase, pending};
use super::settle::{ask_oldest, is_oldest, replace_interim};
use crate::pending::{DELIVERED, DROPPED, Entry, REFUSED};
use crate::pending::{Kind, Tallies};

/// Put back in one step.
const REDRIVEN_MAX: usize = 1000;

/// See [`firstwrite_core::outbox::Outbox::redrive`].
pub(super) async fn redrive(
    pool: &Arc<Pool>,
    query: &MessageQuery,
    limit: usize,
    by: &AuditEntry,
) -> Result<usize, StoreError> {
    if query.state.is_some_and(|state| state != MessageState::Dead) {
        return Ok(0);
    }
    let dead = MessageQuery { state: Some(MessageState::Dead), ..query.clone() };
    let limit = limit.min(REDRIVEN_MAX);
    take!(pool, "redriving messages", |session| redrive_once(&mut session, &dead, limit, by))
}

async fn redrive_once(
    session: &mut Session,
    dead: &MessageQuery,
    limit: usize,
    by: &AuditEntry,
) -> Result<usize, Failure> {
    let (now, answers) = session.begin(|flight| Filter(dead).numbers(flight, limit)).await?;
    let mut numbers = Vec::new();
    for row in &answers[0].rows {
        numbers.push(MessageNumber(integer(row, 0)?));
    }
    let locked = lock(session, &numbers).await?;
    let dead: Vec<Pending> = locked.into_iter().filter(|one| one.phase == Phase::Dead).collect();
    let due = due_now(session, &dead, now).await?;
    let (mut writing, mut tallies) = (Flight::new(), Tallies::default());
    for (pending, due_at) in dead.iter().zip(due) {
        tallies.moved(&pending.destination, pending.phase, Some(Kind::Open));
        let back = Pending {
            phase: Phase::Waiting,
            due_at,
            delivery_count: 0,
            lapse_count: 0,
            ..pending.clone()
        };
        pending::update(&mut writing, &back);
        let entry = audit(by, &format!("redrive message {}", pending.number));
        put_audit(&mut writing, pending.id.as_bytes(), &entry);
    }
    tallies.put(&mut writing);
    writing.commit();
    session.fly(&writing).await?;
    Ok(dead.len())
}

/// See [`firstwrite_core::outbox::Outbox::resolve`].
pub(super) async fn resolve(
    pool: &Arc<Pool>,
    number: MessageNumber,
    seen: Fence,
    resolution: &Resolution,
    by: &AuditEntry,
) -> Result<Held, StoreError> {
    take!(pool, "resolving a message", |session| resolve_once(
        &mut session,
        (number, seen),
        resolution,
        by
    ))
}

async fn resolve_once(
    session: &mut Session,
    (number, seen): (MessageNumber, Fence),
    resolution: &Resolution,
    by: &AuditEntry,
) -> Result<Held, Failure> {
    let (now, _) = session.begin(|_| ()).await?;
    let mut writing = Flight::new();
    let pending = lock(session, &[number]).await?.into_iter().find(|pending| {
        let is_being_sent = pending.phase == Phase::Sending && pending.due_at > Some(now);
        pending.fence == seen && !is_being_sent
    });
    let Some(pending) = pending else {
        writing.commit();
        session.fly(&writing).await?;
        return Ok(Held::No);
    };
    // No claim can have this count: the next one is made from it.
    let fence = seen.next(0);
    let (told, answer, becomes) = match resolution {
        Resolution::Delivered { receipt, answer } => {
            let told = (DELIVERED, receipt.provider_id.as_deref());
            (Some(told), answer.as_ref(), Some(Kind::Delivered))
        }
        Resolution::Refused { answer } => (Some((REFUSED, None)), answer.as_ref(), None),
        Resolution::Dropped => (Some((DROPPED, None)), None, None),
        Resolution::NotDelivered => {
            let due = due_now(session, std::slice::from_ref(&pending), now).await?;
            let back = Pending {
                phase: Phase::Waiting,
                due_at: due.into_iter().next().flatten(),
                fence,
                delivery_count: 0,
                lapse_count: 0,
                maybe_sent_at: None,
                ..pending.clone()
            };
            pending::update(&mut writing, &back);
            (None, None, Some(Kind::Open))
        }
    };
    if let Some((ending, provider_id)) = told {
        let detail = &by.reason;
        Entry { number, fence, ending, status: None, detail, provider_id }.put(&mut writing);
        pending::end(&mut writing, &pending);
    }
    if let Some(outcome) = answer {
        replace_interim(&mut writing, pending.id, outcome);
    }
    let mut tallies = Tallies::default();
    tallies.moved(&pending.destination, pending.phase, becomes);
    tallies.put(&mut writing);
    let entry = audit(by, &format!("{} message {number}", by.action));
    put_audit(&mut writing, pending.id.as_bytes(), &entry);
    writing.commit();
    session.fly(&writing).await?;
    Ok(Held::Yes)
}

/// Locks messages, their destinations first, as claims do it.
async fn lock(session: &mut Session, numbers: &[MessageNumber]) -> Result<Vec<Pending>, Failure> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut looking = Flight::new();
    for number in numbers {
        let sql = "SELECT destination FROM firstwrite_pending WHERE message = ?";
        looking.add(sql, &[Value::Int(number.0)]);
    }
    let mut names = BTreeSet::new();
    for row in session.fly(&looking).await?.iter().filter_map(|answer| answer.rows.first()) {
        names.insert(owned_text(row, 0)?);
    }
    let mut locking = Flight::new();
    for destination in &names {
        destinations::lock(&mut locking, destination);
    }
    for number in numbers {
        pending::lock(&mut locking, *number);
    }
    let answers = session.fly(&locking).await?;
    let rows = answers[names.len()..].iter().filter_map(|answer| answer.rows.first());
    rows.map(|row| pending(row, 0).map_err(Failure::from)).collect()
}

/// For each, `now`, unless an older message under the same ordering key stands in the way.
async fn due_now(
    session: &mut Session,
    messages: &[Pending],
    now: Timestamp,
) -> Result<Vec<Option<Timestamp>>, Failure> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let mut flight = Flight::new();
    for pending in messages {
        ask_oldest(&mut flight, pending);
    }
    let answers = session.fly(&flight).await?;
    let mut due = Vec::with_capacity(messages.len());
    for (pending, answer) in messages.iter().zip(&answers) {
        due.push(is_oldest(answer, pending.number)?.then_some(now));
    }
    Ok(due)
}

fn audit(by: &AuditEntry, action: &str) -> AuditEntry {
    AuditEntry { action: action.to_owned(), ..by.clone() }
}
