//! The contract of a store, for people who write one.
//!
//! A store keeps records and decides nothing: [`Store`] is a few atomic steps, [`protocol`] builds the
//! operations of the layer out of them, and [`judge`] says what a request may do given the record under its key.
//! Implement [`TransactionalStore`] if the store runs closures in its transactions, or
//! [`AsyncTransactionalStore`] if a handler can hold one; either makes
//! [`IdempotencyLayer::atomic`](crate::IdempotencyLayer::atomic) available. [`outbox::Outbox`] and
//! [`documents::Documents`] are optional. The crate `firstwrite-testkit` has the conformance suite that every
//! store passes; [`MemoryStore`](crate::MemoryStore) is the smallest example.

pub use firstwrite_core::{
    AsyncTransactionalStore, AuditEntry, Audited, BeginResult, Body, BoxFuture, Capabilities,
    Certainty, Change, Conclusion, Draft, DraftState, Fingerprint, Found, Guard, Inserted,
    KeptHeaders, Lease, Page, Query, Record, Request, Retention, Seen, State, StateFilter,
    StateKind, Store, StoreErrorKind, Swapped, Transacted, TransactionalStore, Usage, UsagePage,
    UsageSums, Verdict, Write, documents, judge, judge_lapsed, judge_orphan, outbox, protocol,
};
