//! The trait that a store of records implements, and its errors.
//!
//! Each method is one atomic step in the backend and decides nothing: the protocol does. The conformance suite
//! in `firstwrite-testkit` defines what every implementation must do.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::StatusCode;

use crate::documents::Documents;
use crate::outbox::Outbox;
use crate::record::Retention;
use crate::{
    AuditEntry, Audited, Draft, Fence, Outcome, Policy, Record, RecordId, StateKind, Tenant,
    Timestamp, UsagePage,
};

/// A boxed future, so that a store can be used as `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The cause behind a [`StoreError`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A store of records.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns what this store can do beyond the minimum.
    fn capabilities(&self) -> Capabilities;

    /// Writes `draft` durably if there is no record under its id, or returns the record that is there.
    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>>;

    /// Applies `change` if `guard` still holds, together with the audit entry, or returns what
    /// stands there instead.
    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>>;

    /// Returns the record under `id`.
    fn get(&self, id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>>;

    /// Returns one page of the records that `query` selects.
    fn list<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// Adds up the records after `after`, tenant by tenant: at most `limit` of them, in the order of their ids.
    /// Stores cap the limit at [`UsagePage::LIMIT_MAX`], and do not read bodies to know their sizes.
    fn usage(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>>;

    /// Deletes up to `limit` completed records past `kept_until`; returns how many.
    ///
    /// A number below `limit` does not mean that none is left: a store may look at a bounded part
    /// of its records in each call.
    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Returns the audit entries of the record under `id`, oldest first.
    fn audits(&self, id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>>;

    /// Returns the time of the store's clock.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;

    /// Checks that no acknowledged record under `id` can have been lost, so that its absence can be believed.
    /// Otherwise the error's kind is [`StoreErrorKind::HistoryLost`], as it is for an insert.
    fn check_history(&self, id: RecordId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Returns the messages of this store, if it keeps any: see [`Capabilities::outbox`].
    fn outbox(&self) -> Option<&dyn Outbox> {
        None
    }

    /// The documents of this store, such as [findings](crate::Findings), if it keeps them.
    fn documents(&self) -> Option<&dyn Documents> {
        None
    }
}

/// A store whose transactions a handler can join: business rows, messages and the record are
/// written in one commit.
pub trait TransactionalStore: Store {
    /// Handle that a handler works with inside the transaction.
    type Tx<'t>;

    /// Looks `id` up, runs `work`, and commits what it concludes, all in one transaction.
    ///
    /// If the draft meets a rival's record, everything `work` did is rolled back and the rival's
    /// record is in [`Transacted::Rival`]. If `work` panics, everything it did is rolled back, the
    /// error's kind is [`StoreErrorKind::Panicked`], and the store goes on.
    fn transact<T, W>(
        &self,
        id: RecordId,
        work: W,
    ) -> impl Future<Output = Result<Transacted<T>, StoreError>> + Send
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&mut Self::Tx<'t>, Option<Found>) -> Conclusion<T> + Send + 'static;
}

/// A store whose transactions a handler holds open over its own awaits, as drivers over a network
/// do it.
///
/// What begins here ends in [`conclude`](Self::conclude). A transaction that is dropped instead is
/// rolled back.
pub trait AsyncTransactionalStore: Store {
    /// Handle that a handler works with inside the transaction.
    type Tx: Send + 'static;

    /// Begins a transaction, tries to lock `id` in it without waiting, and looks `id` up.
    ///
    /// The look-up may see what was committed before the lock was had, and nothing later: a rival that
    /// commits in between is met by [`conclude`](Self::conclude).
    fn begin(
        &self,
        id: RecordId,
    ) -> impl Future<Output = Result<BeginResult<Self::Tx>, StoreError>> + Send;

    /// Ends the transaction by committing or undoing what `write` says.
    ///
    /// The record's uniqueness is the arbiter, whatever the lock said: if the draft meets a rival's
    /// record, or finds that what it takes over has moved, everything is rolled back and what
    /// stands is in [`Transacted::Rival`].
    fn conclude(
        &self,
        tx: Self::Tx,
        write: Write,
    ) -> impl Future<Output = Result<Transacted<()>, StoreError>> + Send;
}

/// Result of beginning a transaction.
#[derive(Debug)]
pub enum BeginResult<Tx> {
    /// It is open and holds the lock. Carries the record under the id, if any.
    Open(Tx, Option<Box<Found>>),
    /// There is a completed record within its retention, so no attempt can run. Nothing is open.
    Stands(Box<Found>),
    /// Another transaction holds the lock: its attempt is in progress. Nothing is open.
    Busy,
}

/// A record as a store found it, and the store's time at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The record.
    pub record: Record,
    /// The store's clock when it was read.
    pub now: Timestamp,
}

/// Result of an insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The draft was written at this time of the store's clock.
    Done(Timestamp),
    /// There is a record already; nothing was written.
    Stands(Box<Found>),
}

/// Result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The change was applied at this time of the store's clock.
    Done(Timestamp),
    /// The guard no longer held; nothing was written. Carries the record under the id now, if any.
    Moved(Option<Box<Found>>),
}

/// Condition under which a swap is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// An attempt's own write: the record carries this fence and is not completed.
    ///
    /// A record that a sweep marked uncertain still carries its owner's fence: the owner is the one
    /// who knows what happened, and may say so late.
    Owner(Fence),
    /// A write by another party, after judging the record: the record has not changed since it was seen.
    Seen(Seen),
}

/// The mutable part of a record, as it was when the record was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The fence it wore.
    pub fence: Fence,
    /// The state it was in.
    pub state: StateKind,
    /// Time until which its lease held, if it was reserved: a renewal in between must be noticed.
    pub lease_until: Option<Timestamp>,
}

/// Change that a swap makes to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The lease holds for this much longer, counted from the store's now. Only of a reserved
    /// record: an uncertain one is not revived by its owner's heartbeat.
    Renew {
        /// The new length of the lease.
        lease_for: Duration,
    },
    /// The outcome is known.
    Complete {
        /// Outcome replayed to every retry.
        outcome: Outcome,
        /// Time for which it is kept.
        retention: Retention,
    },
    /// The attempt ended with an unknown result; see [`Change::MARK_UNCERTAIN`].
    MarkUncertain {
        /// Time since it was given up; zero, unless the record is a copy of another store's. A probe's patience
        /// counts from there.
        ago: Duration,
    },
    /// Nothing but the audit entry, which is a copy of another store's.
    Note {
        /// Time since it was written there.
        ago: Duration,
    },
    /// The next attempt begins in the place of what stood there.
    TakeOver(Box<Draft>),
    /// The key is free again.
    Remove,
}

impl Change {
    /// The attempt is given up now.
    pub const MARK_UNCERTAIN: Self = Self::MarkUncertain { ago: Duration::ZERO };

    /// The key is free again, and a note of `status` stays for clients that were told to poll for the result:
    /// for `noted_for`, or until the key is used again.
    pub fn free_noted(status: StatusCode, noted_for: Duration) -> Self {
        let retention =
            Retention { replay_for: Duration::ZERO, linger_for: noted_for, refuses_spent: false };
        Self::Complete { outcome: Outcome::released(status), retention }
    }

    /// Frees the key of an attempt that its owner did not end. Whether its client was told to poll stands in no
    /// record, so the note is always left.
    pub fn free_given_up() -> Self {
        Self::free_noted(StatusCode::GATEWAY_TIMEOUT, Policy::SLACK_DEFAULT)
    }

    /// Returns true if the key is free afterwards.
    pub fn frees(&self) -> bool {
        match self {
            Self::Complete { outcome, .. } => outcome.is_release_note(),
            Self::Remove => true,
            Self::Renew { .. }
            | Self::MarkUncertain { .. }
            | Self::Note { .. }
            | Self::TakeOver(_) => false,
        }
    }

    /// Returns by how much the audit entry is older than the change.
    pub fn audited_ago(&self) -> Duration {
        match self {
            Self::Note { ago } => *ago,
            Self::Renew { .. }
            | Self::Complete { .. }
            | Self::MarkUncertain { .. }
            | Self::TakeOver(_)
            | Self::Remove => Duration::ZERO,
        }
    }
}

/// Conclusion of `work` inside a transaction.
#[derive(Debug)]
pub struct Conclusion<T> {
    /// The write to commit.
    pub write: Write,
    /// Value to hand back to the caller.
    pub answer: T,
}

/// Content that a transaction commits.
#[derive(Debug)]
pub enum Write {
    /// The rows and messages that `work` wrote, and the record.
    All(Box<Draft>),
    /// The record alone; the rows and messages are rolled back.
    RecordOnly(Box<Draft>),
    /// Nothing: the rows and messages are rolled back.
    Nothing,
}

/// Result of a transaction.
#[derive(Debug)]
pub enum Transacted<T> {
    /// The transaction ended as `work` concluded, at this time of the store's clock.
    Done(T, Timestamp),
    /// A rival's record stood in the way at the end; everything was rolled back.
    Rival(Box<Found>),
}

/// Selects the records to list.
#[derive(Clone, Debug)]
pub struct Query {
    /// Only this tenant's records, or those of all tenants (operators only).
    pub tenant: Option<Tenant>,
    /// Only those in this state.
    pub state: Option<StateFilter>,
    /// Start after this record, as the last page's `next` said.
    pub after: Option<RecordId>,
    /// Maximum number of records; stores cap it at [`Query::LIMIT_MAX`].
    pub limit: usize,
}

/// Selects records by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateFilter {
    /// Reserved, whether the lease holds or not.
    Reserved,
    /// Reserved, and the lease has run out. In the store's own order and on one page, which has no next and
    /// does not read `after`: a sweep changes what it was shown and asks again.
    Lapsed,
    /// Completed.
    Completed,
    /// Uncertain.
    Uncertain,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records, in the order of their ids (but see [`StateFilter::Lapsed`]).
    pub records: Vec<Record>,
    /// Start of the next page, if there is one.
    pub next: Option<RecordId>,
    /// The store's clock when the page was read.
    pub now: Timestamp,
}

/// Abilities of a store beyond the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of independent claims, read by name")]
pub struct Capabilities {
    /// A handler's rows, its messages and the record can share one commit.
    pub transactions: bool,
    /// Messages can be written and claimed.
    pub outbox: bool,
    /// Acknowledged writes survive the end of the process.
    pub durable: bool,
    /// Time comes from a clock that all users of the store share.
    pub server_time: bool,
    /// Time after which the store itself gives up a step (a statement, a command or a call), if it has a limit. A
    /// lease must not be shorter: a reservation that is acknowledged after its own lease is of no use.
    pub answers_within: Option<Duration>,
}

impl Capabilities {
    /// Returns true if every ability in `needed` is here. The time limit is none.
    pub fn cover(&self, needed: Self) -> bool {
        (self.transactions || !needed.transactions)
            && (self.outbox || !needed.outbox)
            && (self.durable || !needed.durable)
            && (self.server_time || !needed.server_time)
    }
}

impl Page {
    /// Makes a page of up to `limit` of `records`, which hold one more if there is a next page. If they do not, the
    /// next page starts after `looked_at_end`, up to where the store has looked, if there is more.
    pub fn of(
        mut records: Vec<Record>,
        limit: usize,
        looked_at_end: Option<RecordId>,
        now: Timestamp,
    ) -> Self {
        let is_full = records.len() > limit;
        records.truncate(limit);
        let next = if is_full { records.last().map(|record| record.id) } else { looked_at_end };
        Self { records, next, now }
    }
}

impl Query {
    /// A page that a person can read and a connection can carry.
    pub const LIMIT_MAX: usize = 1000;

    /// Selects up to `limit` reserved records of all tenants whose lease ran out.
    pub fn lapsed(limit: usize) -> Self {
        Self { tenant: None, state: Some(StateFilter::Lapsed), after: None, limit }
    }

    /// Returns true if `record` is selected at `now`, wherever the page starts.
    ///
    /// For stores that have the record in memory; others put the same condition into the statement that reads.
    pub fn selects(&self, record: &Record, now: Timestamp) -> bool {
        let is_lapsed = || record.state.lease_until().is_some_and(|until| until <= now);
        self.tenant.as_ref().is_none_or(|tenant| record.tenant == *tenant)
            && self.state.is_none_or(|state| {
                record.state.kind() == state.kind() && (state != StateFilter::Lapsed || is_lapsed())
            })
    }
}

impl StateFilter {
    /// Returns the state of the records that it selects.
    pub fn kind(self) -> StateKind {
        match self {
            Self::Reserved | Self::Lapsed => StateKind::Reserved,
            Self::Completed => StateKind::Completed,
            Self::Uncertain => StateKind::Uncertain,
        }
    }
}

impl From<StateKind> for StateFilter {
    fn from(kind: StateKind) -> Self {
        match kind {
            StateKind::Reserved => Self::Reserved,
            StateKind::Completed => Self::Completed,
            StateKind::Uncertain => Self::Uncertain,
        }
    }
}

impl Record {
    /// Returns the mutable part of this record: the guard for a write that follows from having judged it.
    pub fn seen(&self) -> Seen {
        Seen { fence: self.fence, state: self.state.kind(), lease_until: self.state.lease_until() }
    }
}

impl Guard {
    /// Returns true if `change` may be applied to `record` under this guard.
    ///
    /// For stores that have the record in memory; others put the same condition into the statement that writes.
    pub fn holds(&self, record: &Record, change: &Change) -> bool {
        let renewable =
            !matches!(change, Change::Renew { .. }) || record.state.kind() == StateKind::Reserved;
        renewable
            && match self {
                Self::Owner(fence) => {
                    record.fence == *fence && record.state.kind() != StateKind::Completed
                }
                Self::Seen(seen) => record.seen() == *seen,
            }
    }
}

/// Failure of a store: its kind, the step that failed, and whether the step may have taken effect all the same.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    certainty: Certainty,
    doing: &'static str,
    source: Option<BoxError>,
}

/// Kind of a store's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It cannot be reached, is shutting down, or is too busy to answer in time.
    Unavailable,
    /// It has no room left.
    Full,
    /// The stored data cannot be understood.
    Corrupt,
    /// It cannot do what was asked, or its data belongs to another version.
    Unsupported,
    /// The handler that ran inside its transaction panicked; everything was rolled back.
    Panicked,
    /// It has lost acknowledged history (a fail-over to a standby that was behind): a key it does
    /// not know may have been used, so nothing new is run until an operator has looked.
    HistoryLost,
}

/// Certainty that a failed step has not taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Nothing was written and nothing will be.
    Definite,
    /// The step may have been applied, or may still be: only reading back tells.
    Indeterminate,
}

impl StoreError {
    /// A step that certainly did not take effect.
    pub fn definite(kind: StoreErrorKind, doing: &'static str) -> Self {
        Self { kind, certainty: Certainty::Definite, doing, source: None }
    }

    /// Makes the error of a step that may or may not have taken effect.
    pub fn indeterminate(kind: StoreErrorKind, doing: &'static str) -> Self {
        Self { kind, certainty: Certainty::Indeterminate, doing, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same trouble, met when the step was repeated because its first acknowledgement was lost: the first may
    /// have taken effect.
    #[must_use]
    pub fn after_lost_acknowledgement(self) -> Self {
        Self { certainty: Certainty::Indeterminate, ..self }
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether the step can have taken effect.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// Returns true if the same step may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StoreErrorKind::Unavailable => "store unavailable",
            StoreErrorKind::Full => "store full",
            StoreErrorKind::Corrupt => "stored data cannot be understood",
            StoreErrorKind::Unsupported => "not supported by this store",
            StoreErrorKind::Panicked => "handler panicked",
            StoreErrorKind::HistoryLost => "acknowledged history was lost",
        };
        write!(f, "{}: {kind}", self.doing)?;
        if self.certainty == Certainty::Indeterminate {
            f.write_str(" (it may have been written)")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
