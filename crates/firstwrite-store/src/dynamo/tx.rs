//! A handler's work: its writes are collected, and sent with the outcome in one transaction.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem, Update};
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Certainty, Draft, Fence, Guard, Message, RecordId, Seen,
    StoreError, Timestamp, Transacted, Write,
};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::DynamoStore;
use super::driver_error::{unavailable, unsupported};
use super::items::fence_of;
use super::link::Link;
use super::outbox::{Numbers, enqueue};
use super::write::{self, Step, Transaction};
use super::{listing, swap};
use crate::transactions::{BEGINNING, CONCLUDING, ENQUEUED_BEFORE, conclusion, is_final};

/// The writes of one handler on a [`DynamoStore`]. They are collected here, and written together with the
/// record in one `TransactWriteItems` when the handler has answered: all of them or none.
///
/// Nothing is locked meanwhile, and no write is visible before the end. The handler reads with
/// [`client`](Self::client) and protects its reads by a condition on its writes, or by
/// [`check`](Self::check). If such a condition does not hold at the end, nothing is written and the request
/// is refused as one that may be retried: it then runs afresh.
///
/// If it is dropped instead of concluded, nothing is written.
pub struct DynamoTx {
    link: Link,
    lock: LockGuard,
    id: RecordId,
    now: Timestamp,
    /// The record that the handler's work will take over, as last read.
    stands: Option<Seen>,
    work: Work,
}

/// Writes and messages to be committed with a record.
#[derive(Default)]
struct Work {
    steps: Vec<TransactWriteItem>,
    messages: Vec<Message>,
    /// Number of the transaction's items that the messages take.
    message_items: usize,
}

const COLLECTING: &str = "collecting a handler's writes";

/// The service takes 100 in one transaction; one is the record.
const STEPS_MAX: usize = 99;

impl AsyncTransactionalStore for DynamoStore {
    type Tx = DynamoTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<DynamoTx>, StoreError> {
        let link = self.link();
        link.writable(BEGINNING)?;
        let lock = self.inner.locks.hold(id);
        let found = match link.item(id, BEGINNING).await? {
            Some(item) => listing::found(link, item).await?,
            None => None,
        };
        if let Some(found) = found.as_ref().filter(|found| is_final(found)) {
            return Ok(BeginResult::Stands(Box::new(found.clone())));
        }
        let Some(lock) = lock else { return Ok(BeginResult::Busy) };
        let stands = found.as_ref().map(|found| found.record.seen());
        let now = found.as_ref().map_or_else(|| link.now(), |found| found.now);
        let tx = DynamoTx { link: link.clone(), lock, id, now, stands, work: Work::default() };
        Ok(BeginResult::Open(tx, found.map(Box::new)))
    }

    async fn conclude(&self, tx: DynamoTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let DynamoTx { link, lock, id, now, stands, work } = tx;
        let Some((draft, keeps_work)) = conclusion(write, id)? else {
            return Ok(Transacted::Done((), now));
        };
        let work = if keeps_work { work } else { Work::default() };
        let ended = commit(&link, &self.inner.delivering.numbers, &draft, stands, &work).await;
        if let Ok(Transacted::Done(..)) = &ended {
            self.enqueued(&work.messages);
        }
        if ended.as_ref().is_err_and(|error| error.certainty() == Certainty::Indeterminate) {
            lock.leave_unresolved();
        }
        ended
    }
}

async fn commit(
    link: &Link,
    numbers: &Numbers,
    draft: &Draft,
    stands: Option<Seen>,
    work: &Work,
) -> Result<Transacted<()>, StoreError> {
    let now = link.now();
    let record = swap::put(link, draft, stands.map(Guard::Seen), (now, CONCLUDING)).await?;
    let rival = match send(link, numbers, draft, record, work).await? {
        Transaction::Done => return Ok(Transacted::Done((), now)),
        // Our own write, whose acknowledgement was lost the first time.
        Transaction::Refused(_, Some(item)) if fence_of(&item)? == draft.fence => {
            return Ok(Transacted::Done((), now));
        }
        Transaction::Refused(_, item) => swap::existing(link, draft.id, item).await?,
    };
    match rival {
        Some(found) => Ok(Transacted::Rival(Box::new(found))),
        None => Err(unavailable(CONCLUDING, "what stood there has gone")),
    }
}

/// Sends everything or nothing. It is refused only if the record was.
async fn send(
    link: &Link,
    numbers: &Numbers,
    draft: &Draft,
    record: Step,
    work: &Work,
) -> Result<Transaction, StoreError> {
    if work.steps.is_empty() && work.messages.is_empty() {
        return write::send(link, record, CONCLUDING).await;
    }
    let mut all = vec![record.in_transaction()];
    all.extend_from_slice(&work.steps);
    let messages_from = all.len();
    for tried in 0..enqueue::TRIES_MAX {
        all.truncate(messages_from);
        for message in &work.messages {
            all.extend(enqueue::steps(link, numbers, message, link.now())?);
        }
        let token = token(link.table(), draft.id, draft.fence, tried);
        match write::transact(link, &all, &token, CONCLUDING).await? {
            end @ (Transaction::Done | Transaction::Refused(0, _)) => return Ok(end),
            // A message's number is taken: nothing was written, and others are drawn.
            Transaction::Refused(place, _) if place >= messages_from => {}
            Transaction::Refused(place, _) => {
                let why =
                    format!("the condition of the handler's write number {place} did not hold");
                return Err(unavailable(CONCLUDING, why));
            }
        }
    }
    Err(unavailable(CONCLUDING, "the numbers that were drawn for its messages are taken"))
}

/// Returns the token by which the service recognises a repetition of the same commit: each attempt has its
/// own fence. Tokens belong to an account, not to a table. A refused commit is sent with other content
/// under another token.
fn token(table: &str, id: RecordId, fence: Fence, tried: u32) -> String {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(b"firstwrite commit")
        .chain_update(id.as_bytes())
        .chain_update(fence.as_u64().to_be_bytes())
        .chain_update(tried.to_be_bytes())
        .chain_update(table)
        .finalize()
        .into();
    let (half, _) = digest.split_first_chunk().expect("16 of 32 bytes");
    format!("{:032x}", u128::from_be_bytes(*half))
}

impl DynamoTx {
    /// Adds the write of an item.
    pub fn put(&mut self, put: Put) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().put(put).build())
    }

    /// Adds the change of an item.
    pub fn update(&mut self, update: Update) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().update(update).build())
    }

    /// Adds the deletion of an item.
    pub fn delete(&mut self, delete: Delete) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().delete(delete).build())
    }

    /// Adds a condition on an item that is not written.
    pub fn check(&mut self, check: ConditionCheck) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().condition_check(check).build())
    }

    /// Returns the SDK's client, for reading. Writes made with it are not part of the transaction.
    pub fn client(&self) -> &aws_sdk_dynamodb::Client {
        &self.link.client
    }

    /// The store's time at which this transaction began.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Adds a message. It takes two items of the transaction, one more with an ordering key, and one for
    /// each 400 kB of a payload of more than 500 bytes.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        let count = enqueue::item_count(message)?;
        let is_same = |other: &Message| {
            (other.tenant(), other.derived_key()) == (message.tenant(), message.derived_key())
        };
        if self.work.messages.iter().any(is_same) {
            return Err(unsupported(COLLECTING, ENQUEUED_BEFORE));
        }
        self.has_room_for(count)?;
        self.work.messages.push(message.clone());
        self.work.message_items += count;
        Ok(())
    }

    fn push(&mut self, step: TransactWriteItem) -> Result<(), StoreError> {
        self.has_room_for(1)?;
        self.work.steps.push(step);
        Ok(())
    }

    fn has_room_for(&self, count: usize) -> Result<(), StoreError> {
        if self.work.steps.len() + self.work.message_items + count <= STEPS_MAX {
            return Ok(());
        }
        let why = format!(
            "a handler writes at most {STEPS_MAX} items in one transaction, those of its messages included"
        );
        Err(unsupported(COLLECTING, why))
    }
}

impl fmt::Debug for DynamoTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoTx")
            .field("record", &self.id)
            .field("step_count", &self.work.steps.len())
            .field("message_count", &self.work.messages.len())
            .finish_non_exhaustive()
    }
}

/// Locks on records within this process: those with a handler at work, and those with a commit of unknown
/// result. Clones share them.
///
/// DynamoDB has no lock that a handler could hold. Between processes only the commit decides; within one, a
/// rival is told at once. And while the result of a commit is unknown, a look-up that does not find it must
/// not be taken as proof that it failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    locks: Arc<Mutex<HashMap<RecordId, Lock>>>,
}

#[derive(Clone, Copy, Debug)]
enum Lock {
    /// A handler is at work.
    InUse,
    /// A commit may still take effect until then.
    Unresolved(Instant),
}

/// A lock that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct LockGuard {
    locks: Locks,
    id: RecordId,
}

/// Time after which no commit can still take effect: longer than the service works on any call.
const UNRESOLVED_FOR: Duration = Duration::from_secs(30);

impl Locks {
    /// Takes the lock of `id`, unless this process holds it already or has a commit of unknown result under it.
    pub(super) fn hold(&self, id: RecordId) -> Option<LockGuard> {
        let mut locks = self.locks();
        match locks.get(&id) {
            Some(Lock::InUse) => return None,
            Some(Lock::Unresolved(until)) if Instant::now() < *until => return None,
            Some(Lock::Unresolved(_)) | None => {}
        }
        locks.insert(id, Lock::InUse);
        Some(LockGuard { locks: self.clone(), id })
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn locks(&self) -> MutexGuard<'_, HashMap<RecordId, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockGuard {
    /// Keeps the lock until the commit under it can no longer take effect.
    pub(super) fn leave_unresolved(self) {
        let mut locks = self.locks.locks();
        let now = Instant::now();
        locks.retain(|_, lock| !matches!(lock, Lock::Unresolved(until) if *until <= now));
        locks.insert(self.id, Lock::Unresolved(now + UNRESOLVED_FOR));
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        if matches!(locks.get(&self.id), Some(Lock::InUse)) {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_has_a_token_of_its_own_that_the_service_takes() {
        let (id, other) = (RecordId::from_bytes([1; 16]), RecordId::from_bytes([2; 16]));
        let fence = Fence::first(1);
        let first = token("keys", id, fence, 0);
        assert_eq!(first, token("keys", id, fence, 0));
        assert_ne!(first, token("keys", id, Fence::first(2), 0));
        assert_ne!(first, token("keys", other, fence, 0));
        assert_ne!(first, token("other", id, fence, 0));
        assert_ne!(first, token("keys", id, fence, 1));
        assert!((1..=36).contains(&first.len()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_comes_back_when_it_is_certain_how_it_ended() {
        let (locks, id) = (Locks::default(), RecordId::from_bytes([7; 16]));
        let held = locks.hold(id).unwrap();
        assert!(locks.hold(id).is_none());
        drop(held);
        locks.hold(id).unwrap().leave_unresolved();
        assert!(locks.hold(id).is_none());
        tokio::time::advance(UNRESOLVED_FOR).await;
        assert!(locks.hold(id).is_some());
        assert!(locks.locks().is_empty());
    }
}
