//! The simplest store that is right: everything in one map behind one lock.
//!
//! For tests, examples and the simulator. It forgets everything when the process ends, and says so
//! in its capabilities.

mod documents;
mod held;
mod outbox;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::documents::Documents;
use crate::outbox::Outbox;
use crate::store::{
    Change, Conclusion, Found, Guard, Inserted, Page, Query, StateFilter, Swapped, Transacted,
    Write,
};
use crate::{
    AuditEntry, Audited, BoxFuture, Capabilities, Draft, Lease, Message, Record, RecordId, State,
    Store, StoreError, StoreErrorKind, Timestamp, TransactionalStore, UsagePage, UsageSums,
};

pub use held::HeldMemoryTx;
use outbox::Outgoing;

/// A store in memory. Clones share one content.
#[derive(Clone)]
pub struct MemoryStore {
    content: Arc<Mutex<Content>>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    records_max: usize,
}

/// A transaction of a [`MemoryStore`]: rows of text under text, for tests and examples.
#[derive(Debug, Default)]
pub struct MemoryTx<'t> {
    rows: BTreeMap<String, String>,
    messages: Vec<Message>,
    committed: Option<&'t BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
struct Content {
    /// Boxed, so that a growing map moves pointers and not records.
    records: HashMap<RecordId, Box<Record>>,
    audits: HashMap<RecordId, Vec<Audited>>,
    rows: BTreeMap<String, String>,
    messages: Vec<Message>,
    outgoing: Outgoing,
    shelf: documents::Shelf,
    /// The ids on which a transaction is open.
    held: HashSet<RecordId>,
}

impl MemoryStore {
    /// About half a gigabyte of small records: a runaway test stops before the machine does.
    pub const RECORDS_MAX_DEFAULT: usize = 1_000_000;

    /// An empty store that takes its time from `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            content: Arc::default(),
            clock: Arc::new(clock),
            records_max: Self::RECORDS_MAX_DEFAULT,
        }
    }

    /// Sets how many records fit; beyond that, an insert says that the store is full.
    #[must_use]
    pub fn records_max(mut self, records_max: usize) -> Self {
        self.records_max = records_max;
        self
    }

    /// The row that committed transactions left under `name`.
    pub fn row(&self, name: &str) -> Option<String> {
        self.content().rows.get(name).cloned()
    }

    /// Returns the number of rows that committed transactions left.
    pub fn row_count(&self) -> usize {
        self.content().rows.len()
    }

    /// The messages that committed transactions left, in the order of their commits.
    pub fn messages(&self) -> Vec<Message> {
        self.content().messages.clone()
    }

    /// A panic cannot leave the map half-written: every step below changes it in one place.
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert_now(&self, draft: &Draft) -> Result<Inserted, StoreError> {
        let mut content = self.content();
        let now = (self.clock)();
        if let Some(record) = content.records.get(&draft.id) {
            return Ok(Inserted::Stands(Box::new(Found { record: Record::clone(record), now })));
        }
        self.check_room(&content, "inserting a record")?;
        content.records.insert(draft.id, Box::new(Record::from_draft(draft, now)));
        Ok(Inserted::Done(now))
    }

    fn swap_now(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Swapped {
        let mut content = self.content();
        let now = (self.clock)();
        let Some(record) = content.records.get_mut(&id) else { return Swapped::Moved(None) };
        if !guard.holds(record, &change) {
            return Swapped::Moved(Some(Box::new(Found { record: Record::clone(record), now })));
        }
        let audited_ago = change.audited_ago();
        match change {
            Change::Note { .. } => {}
            Change::Renew { lease_for } => {
                record.state = State::Reserved(Lease { until: now.plus(lease_for) });
            }
            Change::Complete { outcome, retention } => {
                record.state = State::completed(outcome, retention, now);
            }
            Change::MarkUncertain { ago } => {
                record.state = State::Uncertain { since: now.minus(ago) }
            }
            Change::TakeOver(draft) => **record = Record::from_draft(&draft, now),
            Change::Remove => {
                content.records.remove(&id);
            }
        }
        if let Some(entry) = audit {
            let at = now.minus(audited_ago);
            content.audits.entry(id).or_default().push(Audited { at, entry: entry.clone() });
        }
        Swapped::Done(now)
    }

    fn list_now(&self, query: &Query) -> Page {
        let content = self.content();
        let now = (self.clock)();
        let limit = query.limit.clamp(1, Query::LIMIT_MAX);
        let is_walked = query.state != Some(StateFilter::Lapsed);
        let after = query.after.filter(|_| is_walked);
        let mut records: Vec<&Record> = content
            .records
            .values()
            .map(|record| &**record)
            .filter(|record| query.selects(record, now))
            .filter(|record| after.is_none_or(|after| record.id > after))
            .collect();
        records.sort_unstable_by_key(|record| record.id);
        let next = (is_walked && records.len() > limit).then(|| records[limit - 1].id);
        records.truncate(limit);
        Page { records: records.into_iter().cloned().collect(), next, now }
    }

    fn usage_now(&self, after: Option<RecordId>, limit: usize) -> UsagePage {
        let content = self.content();
        let limit = limit.clamp(1, UsagePage::LIMIT_MAX);
        let mut records: Vec<&Record> = content
            .records
            .values()
            .map(|record| &**record)
            .filter(|record| after.is_none_or(|after| record.id > after))
            .collect();
        records.sort_unstable_by_key(|record| record.id);
        let mut sums = UsageSums::default();
        for record in records.into_iter().take(limit) {
            sums.count(record.id, record.tenant.clone(), record.usage());
        }
        sums.page(limit)
    }

    fn reap_now(&self, limit: usize) -> usize {
        let mut content = self.content();
        let now = (self.clock)();
        let is_due = |record: &Record| match record.state {
            State::Completed { kept_until, .. } => kept_until <= now,
            State::Reserved(_) | State::Uncertain { .. } => false,
        };
        let due = content.records.values().filter(|record| is_due(record));
        let ids: Vec<RecordId> = due.take(limit).map(|record| record.id).collect();
        for id in &ids {
            content.records.remove(id);
        }
        ids.len()
    }

    fn transact_now<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T>,
    {
        let mut content = self.content();
        let now = (self.clock)();
        let found =
            content.records.get(&id).map(|record| Found { record: Record::clone(record), now });
        let mut tx = MemoryTx { committed: Some(&content.rows), ..MemoryTx::default() };
        let Ok(Conclusion { write, answer }) =
            catch_unwind(AssertUnwindSafe(|| work(&mut tx, found)))
        else {
            return Err(StoreError::definite(StoreErrorKind::Panicked, "running a handler"));
        };
        let MemoryTx { rows, messages, .. } = tx;
        let (draft, keeps_rows) = match write {
            Write::All(draft) => (draft, true),
            Write::RecordOnly(draft) => (draft, false),
            Write::Nothing => return Ok(Transacted::Done(answer, now)),
        };
        if !content.records.contains_key(&id) {
            self.check_room(&content, "committing a handler's work")?;
        }
        content.commit(keeps_rows.then_some((rows, messages)), &draft, now);
        Ok(Transacted::Done(answer, now))
    }

    fn check_room(&self, content: &Content, doing: &'static str) -> Result<(), StoreError> {
        if content.records.len() < self.records_max {
            return Ok(());
        }
        Err(StoreError::definite(StoreErrorKind::Full, doing))
    }
}

impl Content {
    /// Writes what a transaction concluded: the record, and what it wrote beside it.
    fn commit<R>(&mut self, beside: Option<(R, Vec<Message>)>, draft: &Draft, now: Timestamp)
    where
        R: IntoIterator<Item = (String, String)>,
    {
        if let Some((rows, messages)) = beside {
            self.rows.extend(rows);
            for message in messages {
                self.messages.push(message.clone());
                self.outgoing.push(message, now);
            }
        }
        self.records.insert(draft.id, Box::new(Record::from_draft(draft, now)));
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transactions: true,
            outbox: true,
            durable: false,
            server_time: false,
            answers_within: None,
        }
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async move { self.insert_now(draft) })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(async move { Ok(self.swap_now(id, guard, change, audit)) })
    }

    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        Box::pin(async move {
            let content = self.content();
            let now = (self.clock)();
            Ok(content.records.get(&id).map(|record| Found { record: Record::clone(record), now }))
        })
    }

    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move { Ok(self.list_now(query)) })
    }

    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        Box::pin(async move { Ok(self.usage_now(after, limit)) })
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.reap_now(limit)) })
    }

    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        Box::pin(async move { Ok(self.content().audits.get(&id).cloned().unwrap_or_default()) })
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move { Ok((self.clock)()) })
    }

    fn check_history(&self, _id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn outbox(&self) -> Option<&dyn Outbox> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl TransactionalStore for MemoryStore {
    type Tx<'t> = MemoryTx<'t>;

    async fn transact<T, W>(&self, id: RecordId, work: W) -> Result<Transacted<T>, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut MemoryTx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static,
    {
        self.transact_now(id, work)
    }
}

impl MemoryTx<'_> {
    /// Writes a row, seen by others once the transaction commits.
    pub fn put(&mut self, name: &str, value: &str) {
        self.rows.insert(name.to_owned(), value.to_owned());
    }

    /// Reads a row, this transaction's own writes included.
    pub fn row(&self, name: &str) -> Option<&str> {
        let committed = || self.committed.and_then(|rows| rows.get(name));
        self.rows.get(name).or_else(committed).map(String::as_str)
    }

    /// Writes a message, to be delivered if and only if the transaction commits.
    pub fn enqueue(&mut self, message: Message) {
        self.messages.push(message);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("record_count", &self.content().records.len())
            .finish_non_exhaustive()
    }
}
