//! The store in memory as one whose transactions a handler holds over its own awaits.

use std::collections::HashMap;

use super::MemoryStore;
use crate::store::{AsyncTransactionalStore, BeginResult, Found, Transacted, Write};
use crate::{Fence, Message, Record, RecordId, State, StoreError, StoreErrorKind, Timestamp};

/// A transaction of a [`MemoryStore`] that is held over awaits. It sees what was committed when it
/// asks, and its own rows.
#[derive(Debug)]
pub struct HeldMemoryTx {
    lock: Lock,
    found: Option<Fence>,
    now: Timestamp,
    rows: HashMap<String, String>,
    messages: Vec<Message>,
}

/// The right to work on an id; given back when it is dropped.
#[derive(Debug)]
struct Lock {
    store: MemoryStore,
    id: RecordId,
}

impl HeldMemoryTx {
    /// Writes a row, seen by others once the transaction commits.
    pub fn put(&mut self, name: &str, value: &str) {
        self.rows.insert(name.to_owned(), value.to_owned());
    }

    /// Writes a message, to be delivered if and only if the transaction commits.
    pub fn enqueue(&mut self, message: Message) {
        self.messages.push(message);
    }
}

impl AsyncTransactionalStore for MemoryStore {
    type Tx = HeldMemoryTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<HeldMemoryTx>, StoreError> {
        let mut content = self.content();
        let now = (self.clock)();
        let record = content.records.get(&id).map(|record| Record::clone(record));
        if let Some(record) = &record
            && let State::Completed { retained_until, .. } = record.state
            && now < retained_until
        {
            return Ok(BeginResult::Stands(Box::new(Found { record: record.clone(), now })));
        }
        if !content.held.insert(id) {
            return Ok(BeginResult::Busy);
        }
        let found = record.as_ref().map(|record| record.fence);
        let lock = Lock { store: self.clone(), id };
        let tx = HeldMemoryTx { lock, found, now, rows: HashMap::new(), messages: Vec::new() };
        Ok(BeginResult::Open(tx, record.map(|record| Box::new(Found { record, now }))))
    }

    async fn conclude(&self, tx: HeldMemoryTx, write: Write) -> Result<Transacted<()>, StoreError> {
        let HeldMemoryTx { lock, found, now, rows, messages } = tx;
        let (draft, keeps_rows) = match write {
            Write::All(draft) => (draft, true),
            Write::RecordOnly(draft) => (draft, false),
            Write::Nothing => return Ok(Transacted::Done((), now)),
        };
        if draft.id != lock.id {
            return Err(StoreError::definite(StoreErrorKind::Unsupported, "committing a handler")
                .caused_by("the draft is for another record"));
        }
        let mut content = self.content();
        let now = (self.clock)();
        match content.records.get(&draft.id) {
            // Reservations take no lock, so one can have come in between.
            Some(rival) if found != Some(rival.fence) => {
                let record = Record::clone(rival);
                return Ok(Transacted::Rival(Box::new(Found { record, now })));
            }
            Some(_) => {}
            None => self.check_room(&content, "committing a handler's work")?,
        }
        content.commit(keeps_rows.then_some((rows, messages)), &draft, now);
        Ok(Transacted::Done((), now))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.store.content().held.remove(&self.id);
    }
}
