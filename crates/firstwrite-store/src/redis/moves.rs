//! The moves on one record: each is a step of a script at the server of its shard.

use firstwrite_core::{
    AuditEntry, Change, Draft, Found, Guard, Inserted, RecordId, Seen, StoreError, StoreErrorKind,
    Swapped, Timestamp,
};
use redis::Value;

use super::doubt::{self, Memory};
use super::fault::{corrupt, unsupported};
use super::flights::{Answer, Flights, Move, Status};
use super::keys::Shard;
use super::link::bytes;
use super::record::{self, NewState, fence_digits, instant_digits, letter};
use super::scripts::{Call, Script};
use super::ways::Ways;
use super::words::Words;

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const SWAPPING: &str = "swapping a record";
const GETTING: &str = "getting a record";

/// Maximum number of attempts to write a record while the server's life keeps changing.
const GREETINGS_MAX: usize = 4;

/// See [`firstwrite_core::Store::insert`].
pub(super) async fn insert(
    (ways, flights): (&Ways, &Flights),
    memory: &Memory,
    draft: &Draft,
) -> Result<Inserted, StoreError> {
    let id = draft.id;
    let new = NewState::of(&draft.state, draft.retention);
    let tail = record::tail(draft, &new.outcome);
    for _ in 0..GREETINGS_MAX {
        let verified = memory.verified();
        let mut args = Words::with_capacity(7, tail.len() + 160);
        args.push("insert");
        args.push(id.as_bytes());
        args.push(new.state);
        args.push(fence_digits(draft.fence));
        args.push(&new.first);
        args.push(&new.second);
        args.push(&tail);
        let keys = ways.keys.moved(id);
        let moved = Move { id, is_removal: false, keys, audits: None, args };
        let answer = flights.fly(moved).await.map_err(|trouble| trouble.error(INSERTING))?;
        match answer.status {
            Status::Done => return Ok(Inserted::Done(answer.now)),
            Status::Stands => {
                if !answer.is_current {
                    drop(doubt::verify_since(ways, memory, verified).await);
                }
                let found = answer.found(id)?.ok_or_else(|| corrupt("what stands is not shown"))?;
                return Ok(Inserted::Stands(Box::new(found)));
            }
            Status::Greet => doubt::verify_since(ways, memory, verified)
                .await
                .map_err(|trouble| trouble.error(INSERTING))?,
            Status::Doubt => return Err(doubt::refuse(INSERTING)),
            Status::Unfit => {
                let why = "the server loses keys, or is not the only one that takes writes; the log says which";
                return Err(unsupported(INSERTING, why));
            }
            Status::Moved => return Err(corrupt("a script answers what it cannot")),
        }
    }
    let error = StoreError::definite(StoreErrorKind::Unavailable, INSERTING);
    Err(error.caused_by("the server is restarted again and again"))
}

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    (ways, flights): (&Ways, &Flights),
    memory: &Memory,
    (id, guard): (RecordId, Guard),
    change: &Change,
    audit: Option<&AuditEntry>,
) -> Result<Swapped, StoreError> {
    if let Change::TakeOver(draft) = change
        && draft.id != id
    {
        return Err(unsupported(SWAPPING, "the draft is for another record"));
    }
    let moved = Move {
        id,
        is_removal: matches!(change, Change::Remove),
        keys: ways.keys.moved(id),
        audits: audit.map(|_entry| ways.keys.audits(id)),
        args: swapping(id, guard, change, audit),
    };
    let verified = memory.verified();
    let answer = flights.fly(moved).await.map_err(|trouble| trouble.error(SWAPPING))?;
    if !answer.is_current {
        // If the server cannot be asked now, the next writer of an unknown key notices the loss.
        drop(doubt::verify_since(ways, memory, verified).await);
    }
    match answer.status {
        Status::Done => Ok(Swapped::Done(answer.now)),
        Status::Moved => Ok(Swapped::Moved(answer.found(id)?.map(Box::new))),
        Status::Stands | Status::Greet | Status::Doubt | Status::Unfit => {
            Err(corrupt("a script answers what it cannot"))
        }
    }
}

/// See [`firstwrite_core::Store::get`].
pub(super) async fn get(ways: &Ways, id: RecordId) -> Result<Option<Found>, StoreError> {
    let keys = Words::from([ways.keys.record(id)]);
    let call = Call { script: Script::Get, keys, args: Words::default() };
    let answer = ways.run(Shard::of(id), |_link| call.clone()).await;
    let answer = answer.map_err(|trouble| trouble.read_error(GETTING))?;
    let Value::Array(parts) = answer else {
        return Err(corrupt("a script answers what it cannot"));
    };
    let [Value::Int(now), value] = &parts[..] else {
        return Err(corrupt("a script answers what it cannot"));
    };
    let now = Timestamp::from_millis(*now);
    bytes(value).map(|value| Ok(Found { record: record::decode(id, value)?, now })).transpose()
}

/// The words of a swap.
fn swapping(id: RecordId, guard: Guard, change: &Change, audit: Option<&AuditEntry>) -> Words {
    let mut words = Words::with_capacity(12, 256);
    words.push(match change {
        Change::Note { .. } => "note",
        Change::Renew { .. } => "renew",
        Change::Complete { .. } => "complete",
        Change::MarkUncertain { .. } => "uncertain",
        Change::TakeOver(_) => "take-over",
        Change::Remove => "remove",
    });
    words.push(id.as_bytes());
    match guard {
        Guard::Owner(fence) => {
            words.append(&Words::from(["owner", &fence_digits(fence), "", ""]));
        }
        Guard::Seen(Seen { fence, state, lease_until }) => {
            let lease = lease_until.map(instant_digits).unwrap_or_default();
            words.append(&Words::from(["seen", &fence_digits(fence), letter(state), &lease]));
        }
    }
    words.push(audit.map(record::encode_audit).unwrap_or_default());
    match change {
        Change::Renew { lease_for } => {
            words.push(record::millis(*lease_for));
        }
        Change::Complete { outcome, retention } => {
            let new = NewState::completed(outcome, *retention);
            words.push(new.first);
            words.push(new.second);
            words.push(new.outcome);
        }
        Change::TakeOver(draft) => {
            let new = NewState::of(&draft.state, draft.retention);
            words.push(new.state);
            words.push(fence_digits(draft.fence));
            words.push(&new.first);
            words.push(&new.second);
            words.push(record::tail(draft, &new.outcome));
        }
        Change::Note { ago } | Change::MarkUncertain { ago } => {
            words.push(ago.as_millis().to_string());
        }
        Change::Remove => {}
    }
    words
}

impl Answer {
    fn found(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let found =
            |value: &Vec<u8>| Ok(Found { record: record::decode(id, value)?, now: self.now });
        self.value.as_ref().map(found).transpose()
    }
}
