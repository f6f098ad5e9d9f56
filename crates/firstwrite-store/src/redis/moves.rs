//! The moves on one record: each is one script at the server of its shard.

use firstwrite_core::{
    AuditEntry, Change, Draft, Found, Guard, Inserted, RecordId, Seen, StateKind, StoreError,
    StoreErrorKind, Swapped, Timestamp,
};
use redis::Value;

use super::doubt::{self, Memory};
use super::fault::{corrupt, unsupported};
use super::keys::Shard;
use super::link::bytes;
use super::record::{self, NewState, fence_digits, instant_digits, letter};
use super::scripts::{Call, Script};
use super::ways::Ways;

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const SWAPPING: &str = "swapping a record";
const GETTING: &str = "getting a record";

/// How often a server may turn out to be another one while one record is written.
const GREETINGS_MAX: usize = 4;

/// What a script that writes answers.
struct Answer {
    status: Status,
    now: Timestamp,
    /// How many writes the shard has taken.
    count: u64,
    value: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Done,
    Stands,
    Moved,
    Greet,
    Doubt,
}

/// See [`firstwrite_core::Store::insert`].
pub(super) async fn insert(
    ways: &Ways,
    memory: &Memory,
    draft: &Draft,
) -> Result<Inserted, StoreError> {
    let (id, shard) = (draft.id, Shard::of(draft.id));
    let new = NewState::of(&draft.state);
    let tail = record::tail(draft, &new.outcome);
    let keys = &ways.keys;
    let index = match draft.state.kind() {
        StateKind::Completed => keys.kept(shard),
        StateKind::Reserved | StateKind::Uncertain => keys.leases(shard),
    };
    let keys = vec![keys.record(id), keys.ids(shard), index, keys.mark(shard)];
    for _ in 0..GREETINGS_MAX {
        let known = memory.of(shard);
        let call = |link: &super::link::Link| Call {
            script: Script::Insert,
            keys: keys.clone(),
            args: vec![
                id.as_bytes().to_vec(),
                link.run().into(),
                known.token.clone().into(),
                known.seen.to_string().into(),
                new.state.into(),
                fence_digits(draft.fence).into(),
                new.first.clone().into(),
                new.second.clone().into(),
                tail.clone(),
            ],
        };
        let answer = ways.run(shard, call).await.map_err(|trouble| trouble.error(INSERTING))?;
        let answer = Answer::read(answer)?;
        match answer.status {
            Status::Done => {
                memory.acknowledged(shard, &known, answer.count);
                return Ok(Inserted::Done(answer.now));
            }
            Status::Stands => {
                memory.acknowledged(shard, &known, answer.count);
                let found = answer.found(id)?.ok_or_else(|| corrupt("what stands is not shown"))?;
                return Ok(Inserted::Stands(Box::new(found)));
            }
            Status::Greet => doubt::greet(ways, memory, shard)
                .await
                .map_err(|trouble| trouble.error(INSERTING))?,
            Status::Doubt => return Err(doubt::refuse(INSERTING)),
            Status::Moved => return Err(corrupt("a script answers what it cannot")),
        }
    }
    let error = StoreError::definite(StoreErrorKind::Unavailable, INSERTING);
    Err(error.caused_by("the server is restarted again and again"))
}

/// See [`firstwrite_core::Store::swap`].
pub(super) async fn swap(
    ways: &Ways,
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
    let shard = Shard::of(id);
    let mut args = vec![id.as_bytes().to_vec()];
    args.extend(guarding(guard));
    args.push(audit.map(record::encode_audit).unwrap_or_default());
    args.extend(changing(change));
    let keys = &ways.keys;
    let keys = vec![
        keys.record(id),
        keys.ids(shard),
        keys.leases(shard),
        keys.kept(shard),
        keys.mark(shard),
        keys.audits(id),
    ];
    let call = Call { script: Script::Swap, keys, args };
    let known = memory.of(shard);
    let answer =
        ways.run(shard, |_link| call.clone()).await.map_err(|trouble| trouble.error(SWAPPING))?;
    let answer = Answer::read(answer)?;
    if answer.count < known.seen {
        // What is missing is missed by the next one who writes an unknown key, if this greeting does not arrive.
        drop(doubt::greet(ways, memory, shard).await);
    }
    memory.acknowledged(shard, &known, answer.count);
    match answer.status {
        Status::Done => Ok(Swapped::Done(answer.now)),
        Status::Moved => Ok(Swapped::Moved(answer.found(id)?.map(Box::new))),
        Status::Stands | Status::Greet | Status::Doubt => {
            Err(corrupt("a script answers what it cannot"))
        }
    }
}

/// See [`firstwrite_core::Store::get`].
pub(super) async fn get(ways: &Ways, id: RecordId) -> Result<Option<Found>, StoreError> {
    let keys = vec![ways.keys.record(id)];
    let call = Call { script: Script::Get, keys, args: Vec::new() };
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

fn guarding(guard: Guard) -> [Vec<u8>; 4] {
    match guard {
        Guard::Owner(fence) => ["owner".into(), fence_digits(fence).into(), Vec::new(), Vec::new()],
        Guard::Seen(Seen { fence, state, lease_until }) => [
            "seen".into(),
            fence_digits(fence).into(),
            letter(state).into(),
            lease_until.map(instant_digits).unwrap_or_default().into(),
        ],
    }
}

fn changing(change: &Change) -> Vec<Vec<u8>> {
    match change {
        Change::Renew { lease_for } => {
            let lease =
                NewState::of(&firstwrite_core::DraftState::Reserved { lease_for: *lease_for });
            vec!["renew".into(), lease.first.into()]
        }
        Change::Complete { outcome, retention } => {
            let new = NewState::completed(outcome, *retention);
            vec!["complete".into(), new.first.into(), new.second.into(), new.outcome]
        }
        Change::MarkUncertain => vec!["uncertain".into()],
        Change::TakeOver(draft) => {
            let new = NewState::of(&draft.state);
            let tail = record::tail(draft, &new.outcome);
            let fence = fence_digits(draft.fence);
            vec![
                "take-over".into(),
                new.state.into(),
                fence.into(),
                new.first.into(),
                new.second.into(),
                tail,
            ]
        }
        Change::Remove => vec!["remove".into()],
    }
}

impl Answer {
    fn read(value: Value) -> Result<Self, StoreError> {
        // The step was done, whatever is wrong with its answer: only reading back tells.
        let wrong = || {
            StoreError::indeterminate(StoreErrorKind::Corrupt, "reading an answer")
                .caused_by("a script answers what it cannot")
        };
        let Value::Array(parts) = value else { return Err(wrong()) };
        let mut parts = parts.into_iter();
        let (Some(status), Some(Value::Int(now)), Some(Value::Int(count))) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let status = match bytes(&status) {
            Some(b"done") => Status::Done,
            Some(b"stands") => Status::Stands,
            Some(b"moved") => Status::Moved,
            Some(b"greet") => Status::Greet,
            Some(b"doubt") => Status::Doubt,
            _ => return Err(wrong()),
        };
        let value = match parts.next() {
            Some(Value::BulkString(value)) => Some(value),
            _ => None,
        };
        let count = u64::try_from(count).map_err(|_negative| wrong())?;
        Ok(Self { status, now: Timestamp::from_millis(now), count, value })
    }

    fn found(&self, id: RecordId) -> Result<Option<Found>, StoreError> {
        let found =
            |value: &Vec<u8>| Ok(Found { record: record::decode(id, value)?, now: self.now });
        self.value.as_ref().map(found).transpose()
    }
}
