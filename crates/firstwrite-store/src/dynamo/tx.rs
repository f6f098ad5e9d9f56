//! A handler's work: its writes are collected, and sent with the outcome in one transaction.

use std::fmt;

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem, Update};
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Certainty, Draft, DraftState, Fence, Found, Guard,
    Message, RecordId, Seen, State, StoreError, Timestamp, Transacted, Write,
};
use sha2::{Digest as _, Sha256};

use super::DynamoStore;
use super::driver_error::{unavailable, unsupported};
use super::items::{Item, fence_of};
use super::link::Link;
use super::locks::HeldLock;
use super::outbox::{Numbers, enqueue};
use super::write::{self, Sent, Step, Transaction};
use super::{listing, swap};

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
    lock: HeldLock,
    id: RecordId,
    now: Timestamp,
    /// The record that the handler's work will take over, as last read.
    stands: Option<Seen>,
    steps: Vec<TransactWriteItem>,
    messages: Vec<Message>,
    /// Number of the transaction's items that the messages take.
    message_items: usize,
}

/// Writes and messages to be committed with a record.
struct Work {
    steps: Vec<TransactWriteItem>,
    messages: Vec<Message>,
}

const BEGINNING: &str = "beginning a handler's transaction";
const COLLECTING: &str = "collecting a handler's writes";
const CONCLUDING: &str = "committing a handler's work";

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
        let (steps, messages) = (Vec::new(), Vec::new());
        let link = link.clone();
        let tx = DynamoTx { link, lock, id, now, stands, steps, messages, message_items: 0 };
        Ok(BeginResult::Open(tx, found.map(Box::new)))
    }

    async fn conclude(&self, tx: DynamoTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let DynamoTx { link, lock, id, now, stands, steps, messages, .. } = tx;
        let (draft, work) = match write {
            Write::Nothing => return Ok(Transacted::Done((), now)),
            Write::All(draft) => (draft, Work { steps, messages }),
            Write::RecordOnly(draft) => (draft, Work { steps: Vec::new(), messages: Vec::new() }),
        };
        check(&draft, id)?;
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
    let stored = swap::stored(link, draft, now, CONCLUDING).await?;
    let record = match stands {
        None => swap::fresh(link, draft, stored.as_ref(), now),
        Some(seen) => swap::take_over(link, draft, Guard::Seen(seen), stored.as_ref(), now),
    };
    let standing = match send(link, numbers, draft, record, work).await? {
        None => return Ok(Transacted::Done((), now)),
        // Our own write, whose acknowledgement was lost the first time.
        Some(Some(item)) if fence_of(&item)? == draft.fence => {
            return Ok(Transacted::Done((), now));
        }
        Some(item) => swap::standing(link, draft.id, item).await?,
    };
    match standing {
        Some(found) => Ok(Transacted::Rival(Box::new(found))),
        None => Err(unavailable(CONCLUDING, "what stood there has gone")),
    }
}

/// Sends everything or nothing. Returns `Some` with the existing item if the record was refused.
async fn send(
    link: &Link,
    numbers: &Numbers,
    draft: &Draft,
    record: Step,
    work: &Work,
) -> Result<Option<Option<Item>>, StoreError> {
    if work.steps.is_empty() && work.messages.is_empty() {
        return Ok(match write::send(link, record, CONCLUDING).await? {
            Sent::Done => None,
            Sent::Refused(item) => Some(item),
        });
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
            Transaction::Done => return Ok(None),
            Transaction::Refused(0, item) => return Ok(Some(item)),
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

/// Returns true if no attempt can run on the record that was found.
fn is_final(found: &Found) -> bool {
    matches!(&found.record.state, State::Completed { retained_until, .. } if found.now < *retained_until)
}

/// Refuses a draft that a handler's work cannot be concluded with.
fn check(draft: &Draft, id: RecordId) -> Result<(), StoreError> {
    if draft.id != id {
        return Err(unsupported(CONCLUDING, "the draft is for another record"));
    }
    match &draft.state {
        DraftState::Completed { .. } => Ok(()),
        DraftState::Reserved { .. } => {
            Err(unsupported(CONCLUDING, "a handler's work ends in an outcome"))
        }
    }
}

impl DynamoTx {
    /// Has an item written.
    pub fn put(&mut self, put: Put) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().put(put).build())
    }

    /// Has an item changed.
    pub fn update(&mut self, update: Update) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().update(update).build())
    }

    /// Has an item deleted.
    pub fn delete(&mut self, delete: Delete) -> Result<(), StoreError> {
        self.push(TransactWriteItem::builder().delete(delete).build())
    }

    /// Has everything depend on a condition on an item that is not written.
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

    /// Has a message written. It takes two items of the transaction, one more with an ordering key, and one for
    /// each 400 kB of a payload of more than 500 bytes.
    pub fn enqueue(&mut self, message: &Message) -> Result<(), StoreError> {
        let count = enqueue::item_count(message)?;
        let is_same = |other: &Message| {
            (other.tenant(), other.derived_key()) == (message.tenant(), message.derived_key())
        };
        if self.messages.iter().any(is_same) {
            return Err(unsupported(
                COLLECTING,
                "the step was enqueued before in this transaction; name each message's step apart",
            ));
        }
        self.has_room_for(count)?;
        self.messages.push(message.clone());
        self.message_items += count;
        Ok(())
    }

    fn push(&mut self, step: TransactWriteItem) -> Result<(), StoreError> {
        self.has_room_for(1)?;
        self.steps.push(step);
        Ok(())
    }

    fn has_room_for(&self, count: usize) -> Result<(), StoreError> {
        if self.steps.len() + self.message_items + count <= STEPS_MAX {
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
            .field("step_count", &self.steps.len())
            .field("message_count", &self.messages.len())
            .finish_non_exhaustive()
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
}
