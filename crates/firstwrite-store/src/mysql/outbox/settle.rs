//! Writing down how claims ended.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use firstwrite_core::outbox::{
    Cause, Delivery, Ending, Held, MessageNumber, Next, Received, Settlement,
};
use firstwrite_core::{Fence, Outcome, RecordId, StoreError, Timestamp};

use super::super::flight::{Flight, Value};
use super::super::pool::Pool;
use super::super::rows::{COMPLETED, fence, integer, is_null, owned_text};
use super::super::session::{Failure, Session, take};
use super::claim::skip;
use super::destinations;
use super::pending::{self, Pending, Phase, pending};
use crate::encoding::encode_outcome;
use crate::pending::{DELIVERED, Entry, said};
use crate::pending::{Kind, Tallies};

const DOING: &str = "settling messages";

/// What is written down where the delivery itself was not.
const FOUND: &str = "found to have arrived";

/// A message that is to be settled, as it stands.
struct Standing {
    pending: Option<Pending>,
    /// What its history says last.
    last: Option<(Fence, String)>,
}

/// See [`firstwrite_core::outbox::Outbox::settle`].
pub(super) async fn settle(
    pool: &Arc<Pool>,
    receipts: &[Received],
    settlements: &[Settlement],
) -> Result<Vec<Held>, StoreError> {
    take!(pool, DOING, |session| settle_once(&mut session, receipts, settlements))
}

async fn settle_once(
    session: &mut Session,
    receipts: &[Received],
    settlements: &[Settlement],
) -> Result<Vec<Held>, Failure> {
    let numbers: BTreeSet<i64> = settlements.iter().map(|settlement| settlement.number.0).collect();
    let (now, standing) = lock(session, &numbers).await?;
    let mut writing = Flight::new();
    for received in receipts {
        Entry::of(received.number, received.fence, &received.delivery).put(&mut writing);
    }
    let has_receipt = |settlement: &Settlement| {
        let same = |received: &Received| {
            received.number == settlement.number && received.fence == settlement.fence
        };
        receipts.iter().any(same)
    };
    let mut settling = Settling { writing, tallies: Tallies::default(), now, standing };
    let held: Vec<Held> = settlements
        .iter()
        .map(|settlement| settling.settle_one(settlement, has_receipt(settlement)))
        .collect();
    settling.tallies.put(&mut settling.writing);
    settling.writing.commit();
    firstwrite_core::crash_point!("mysql-settle-before-commit");
    session.fly(&settling.writing).await?;
    firstwrite_core::crash_point!("mysql-settle-after-commit");
    Ok(held)
}

/// Locks messages and reads how they stand. Where one belongs to an order, its destination is locked first, as
/// a claim does it: so nobody puts a successor aside while it is being let go.
async fn lock(
    session: &mut Session,
    numbers: &BTreeSet<i64>,
) -> Result<(Timestamp, HashMap<i64, Standing>), Failure> {
    let (now, answers) = session
        .begin(|flight| {
            for number in numbers {
                flight.add(
                    "SELECT destination FROM firstwrite_pending \
                     WHERE message = ? AND ordering_key IS NOT NULL",
                    &[Value::Int(*number)],
                );
            }
        })
        .await?;
    let mut ordered = BTreeSet::new();
    for row in answers.iter().filter_map(|answer| answer.rows.first()) {
        ordered.insert(owned_text(row, 0)?);
    }
    let mut flight = Flight::new();
    for destination in &ordered {
        destinations::lock(&mut flight, destination);
    }
    let mut places = Vec::with_capacity(numbers.len());
    for number in numbers {
        let place = pending::lock(&mut flight, MessageNumber(*number));
        flight.add(
            "SELECT fence, ending FROM firstwrite_deliveries WHERE message = ? \
             ORDER BY fence DESC LIMIT 1",
            &[Value::Int(*number)],
        );
        places.push((*number, place));
    }
    if places.is_empty() {
        return Ok((now, HashMap::new()));
    }
    let answers = session.fly(&flight).await?;
    let mut standing = HashMap::with_capacity(places.len());
    for (number, place) in places {
        let pending = match answers[place].rows.first().map(|row| pending(row, 0)).transpose() {
            Ok(pending) => pending,
            Err(error) => {
                skip(number, error)?;
                None
            }
        };
        let last = match answers[place + 1].rows.first() {
            Some(row) => Some((fence(row, 0)?, owned_text(row, 1)?)),
            None => None,
        };
        standing.insert(number, Standing { pending, last });
    }
    Ok((now, standing))
}

/// What a step of settlements writes.
struct Settling {
    writing: Flight,
    tallies: Tallies,
    now: Timestamp,
    standing: HashMap<i64, Standing>,
}

impl Settling {
    fn settle_one(&mut self, settlement: &Settlement, has_receipt: bool) -> Held {
        let Settlement { number, fence, delivery, next, answer } = settlement;
        let (pending, last) = match self.standing.get_mut(&number.0) {
            // Taken, so that a second settlement of the same message finds it settled.
            Some(standing) => {
                let holds = standing
                    .pending
                    .as_ref()
                    .is_some_and(|one| one.phase == Phase::Sending && one.fence == *fence);
                (standing.pending.take_if(|_| holds), standing.last.clone())
            }
            None => (None, None),
        };
        let arrived = matches!(delivery, Some(Delivery { ending: Ending::Delivered(_), .. }));
        if let Some(delivery) = delivery
            && (pending.is_some() || arrived)
        {
            Entry::of(*number, *fence, delivery).put(&mut self.writing);
        }
        let Some(mut pending) = pending else { return Held::No };
        let ended = last_ending(last, *fence, delivery.as_ref(), has_receipt);
        let was = pending.phase;
        let becomes = match next {
            Next::Delivered(receipt) => {
                let arrived = Delivery::new(Ending::Delivered(receipt.clone()), FOUND);
                self.end(&pending, ended.as_deref(), &arrived);
                Some(Kind::Delivered)
            }
            Next::Refused => {
                let refused = Delivery::new(Ending::Refused, said(Cause::Refused));
                self.end(&pending, ended.as_deref(), &refused);
                None
            }
            Next::Waiting { .. } | Next::Unknown(_) | Next::Dead(_) => {
                pending.proceed(delivery.as_ref(), next, self.now);
                pending::update(&mut self.writing, &pending);
                Some(pending.phase.kind())
            }
        };
        self.tallies.moved(&pending.destination, was, becomes);
        if let Some(outcome) = answer {
            replace_interim(&mut self.writing, pending.id, outcome);
        }
        Held::Yes
    }

    /// Ends a message, and sees to it that its history ends like this.
    fn end(&mut self, pending: &Pending, ended: Option<&str>, delivery: &Delivery) {
        if ended != Some(delivery.ending.as_str()) {
            Entry::of(pending.number, pending.fence, delivery).put(&mut self.writing);
        }
        pending::end(&mut self.writing, pending);
    }
}

/// What a message's history says last, after what this step has added to it. Its claim's fence is the
/// greatest there is.
fn last_ending(
    last: Option<(Fence, String)>,
    fence: Fence,
    delivery: Option<&Delivery>,
    has_receipt: bool,
) -> Option<String> {
    let said = delivery.map(|delivery| delivery.ending.as_str());
    if has_receipt || said == Some(DELIVERED) {
        return Some(DELIVERED.to_owned());
    }
    match last {
        // Of two under one fence the first stands.
        Some((same, ending)) if same == fence => Some(ending),
        Some((_, ending)) => said.map(str::to_owned).or(Some(ending)),
        None => said.map(str::to_owned),
    }
}

/// Adds the statement that puts `outcome` in the place of the interim one under `id`, if there is one. Its
/// retention begins now.
pub(super) fn replace_interim(flight: &mut Flight, id: RecordId, outcome: &Outcome) {
    let last = Outcome { is_interim: false, ..outcome.clone() };
    flight.add(
        "UPDATE firstwrite_records SET outcome = ?, \
         retained_until = @firstwrite_now + replay_for, \
         due_at = @firstwrite_now + replay_for + linger_for \
         WHERE id = ? AND state = ? AND ORD(LEFT(outcome, 1)) & 2 = 2",
        &[Value::Bytes(&encode_outcome(&last)), Value::Bytes(id.as_bytes()), Value::Int(COMPLETED)],
    );
}

/// Whether a message is the oldest under its ordering key, from the answer to [`ask_oldest`].
pub(super) fn is_oldest(
    answer: &super::super::flight::Answer,
    number: MessageNumber,
) -> Result<bool, StoreError> {
    match answer.rows.first() {
        Some(row) if !is_null(row, 0) => Ok(integer(row, 0)? == number.0),
        _ => Ok(true),
    }
}

/// Adds a look at the oldest message under the ordering key of `pending`.
pub(super) fn ask_oldest(flight: &mut Flight, pending: &Pending) -> usize {
    let key =
        pending.ordering_key.as_deref().map_or(Value::Null, |key| Value::Bytes(key.as_bytes()));
    flight.add(
        "SELECT MIN(message) FROM firstwrite_pending WHERE destination = ? AND ordering_key = ?",
        &[Value::Text(&pending.destination), key],
    )
}
