//! The moves on one record: each is a step of a script at the server of its shard.

use firstwrite_core::{
    AuditEntry, Change, Draft, Found, Guard, Inserted, RecordId, Seen, StoreError, StoreErrorKind,
    Swapped,
};

use super::driver_error::{corrupt, unsupported};
use super::history_loss::{self, Memory};
use super::keys::Shard;
use super::link::{bytes, instant_of, parts};
use super::pipeline::{Answer, Move, Pipeline, Status};
use super::record::{self, NewState, fence_digits, instant_digits, letter};
use super::routing::Router;
use super::scripts::{Call, CommandArgs, Script};

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const SWAPPING: &str = "swapping a record";
const GETTING: &str = "getting a record";

/// Maximum number of attempts to write a record while the server's life keeps changing.
const GREETINGS_MAX: usize = 4;

/// See [`firstwrite_core::Store::insert`].
pub(super) async fn insert(
    (router, pipeline): (&Router, &Pipeline),
    memory: &Memory,
    draft: &Draft,
) -> Result<Inserted, StoreError> {
    let id = draft.id;
    let new = NewState::of(&draft.state, draft.retention);
    let tail = record::tail(draft, &new.outcome);
    for _ in 0..GREETINGS_MAX {
        let verified = memory.verified();
        let mut args = CommandArgs::with_capacity(7, tail.len() + 160);
        args.push("insert");
        args.push(id.as_bytes());
        args.push(new.state);
        args.push(fence_digits(draft.fence));
        args.push(&new.first);
        args.push(&new.second);
        args.push(&tail);
        let keys = router.keys.moved(id);
        let moved = Move { id, is_removal: false, keys, audits: None, args };
        let answer = pipeline.send(moved).await.map_err(|error| error.error(INSERTING))?;
        match answer.status {
            Status::Done => return Ok(Inserted::Done(answer.now)),
            Status::Stands => {
                if !answer.is_current {
                    drop(history_loss::verify_since(router, memory, verified).await);
                }
                let found = answer.found(id)?.ok_or_else(|| corrupt("what stands is not shown"))?;
                return Ok(Inserted::Stands(Box::new(found)));
            }
            Status::Unverified => history_loss::verify_since(router, memory, verified)
                .await
                .map_err(|error| error.error(INSERTING))?,
            Status::HistoryLost => return Err(history_loss::refuse(INSERTING)),
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
    (router, pipeline): (&Router, &Pipeline),
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
        keys: router.keys.moved(id),
        audits: audit.map(|_entry| router.keys.audits(id)),
        args: swapping(id, guard, change, audit),
    };
    let verified = memory.verified();
    let answer = pipeline.send(moved).await.map_err(|error| error.error(SWAPPING))?;
    if !answer.is_current {
        // If the server cannot be asked now, the next writer of an unknown key notices the loss.
        drop(history_loss::verify_since(router, memory, verified).await);
    }
    match answer.status {
        Status::Done => Ok(Swapped::Done(answer.now)),
        Status::Moved => Ok(Swapped::Moved(answer.found(id)?.map(Box::new))),
        Status::Stands | Status::Unverified | Status::HistoryLost | Status::Unfit => {
            Err(corrupt("a script answers what it cannot"))
        }
    }
}

/// See [`firstwrite_core::Store::get`].
pub(super) async fn get(router: &Router, id: RecordId) -> Result<Option<Found>, StoreError> {
    let keys = CommandArgs::from([router.keys.record(id)]);
    let call = Call { script: Script::Get, keys, args: CommandArgs::default() };
    let answer = router.run(Shard::of(id), |_link| call.clone()).await;
    let [now, value] = parts(answer.map_err(|error| error.read_error(GETTING))?)?;
    let now = instant_of(&now)?;
    bytes(&value).map(|value| Ok(Found { record: record::decode(id, value)?, now })).transpose()
}

/// The args of a swap.
fn swapping(
    id: RecordId,
    guard: Guard,
    change: &Change,
    audit: Option<&AuditEntry>,
) -> CommandArgs {
    let mut args = CommandArgs::with_capacity(12, 256);
    args.push(match change {
        Change::Note { .. } => "note",
        Change::Renew { .. } => "renew",
        Change::Complete { .. } => "complete",
        Change::MarkUncertain { .. } => "uncertain",
        Change::TakeOver(_) => "take-over",
        Change::Remove => "remove",
    });
    args.push(id.as_bytes());
    match guard {
        Guard::Owner(fence) => {
            args.append(&CommandArgs::from(["owner", &fence_digits(fence), "", ""]));
        }
        Guard::Seen(Seen { fence, state, lease_until }) => {
            let lease = lease_until.map(instant_digits).unwrap_or_default();
            args.append(&CommandArgs::from(["seen", &fence_digits(fence), letter(state), &lease]));
        }
    }
    args.push(audit.map(record::encode_audit).unwrap_or_default());
    match change {
        Change::Renew { lease_for } => {
            args.push(record::millis(*lease_for));
        }
        Change::Complete { outcome, retention } => {
            let new = NewState::completed(outcome, *retention);
            args.push(new.first);
            args.push(new.second);
            args.push(new.outcome);
        }
        Change::TakeOver(draft) => {
            let new = NewState::of(&draft.state, draft.retention);
            args.push(new.state);
            args.push(fence_digits(draft.fence));
            args.push(&new.first);
            args.push(&new.second);
            args.push(record::tail(draft, &new.outcome));
        }
        Change::Note { ago } | Change::MarkUncertain { ago } => {
            args.push(ago.as_millis().to_string());
        }
        Change::Remove => {}
    }
    args
}

impl Answer {
    fn found(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let found =
            |value: &Vec<u8>| Ok(Found { record: record::decode(id, value)?, now: self.now });
        self.value.as_ref().map(found).transpose()
    }
}
