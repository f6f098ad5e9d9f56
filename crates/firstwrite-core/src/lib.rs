//! The words and rules of firstwrite.
//!
//! Nothing in this crate opens a socket, reads a clock, the environment or a file, or draws a
//! random number: time and nonces come in as arguments, so a seed decides a run.
//!
//! Start with [`judge()`], the one place where the protocol is decided; [`protocol`] carries its
//! verdicts out over any [`Store`]; [`MemoryStore`] is the simplest store that is right.

#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod corrected_clock;
#[doc(hidden)]
pub mod crash_point;
mod delegate;
pub mod documents;
#[doc(hidden)]
pub mod encoding;
pub mod findings;
mod fingerprint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod history_loss;
#[doc(hidden)]
pub mod host_clock;
mod inbox;
mod judge;
mod key;
mod memory;
mod message;
pub mod outbox;
mod outcome;
mod policy;
pub mod protocol;
pub mod reconcile;
mod record;
mod rejection;
#[doc(hidden)]
pub mod server_clock;
mod store;
mod sync;
mod tenant;
mod time;
mod usage;

pub use documents::Documents;
pub use findings::{FindingKind, Findings};
pub use fingerprint::{
    BodyForm, Comparison, Fingerprint, FingerprintRules, PartDigests, Parts, Pointer, PointerError,
    Secret, SecretError, SecretId, Secrets,
};
#[doc(hidden)]
pub use history_loss::lost_again;
pub use history_loss::{ClearedLoss, HistoryClearance, HistoryLoss};
pub use host_clock::{Clock, ClockJump, Stopwatch};
pub use inbox::{Consumed, Inbox, InboxError};
pub use judge::{Request, Verdict, judge, judge_lapsed, judge_orphan};
pub use key::{Key, KeyError};
pub use memory::{HeldMemoryTx, MemoryStore, MemoryTx};
pub use message::{Message, MessageError};
pub use outcome::{Body, HeaderPolicy, Interim, KeptHeaders, Outcome};
pub use policy::{
    AfterRetention, AnswerMeaning, Effect, KeptStatuses, KeyRequirement, Mode, OnConflict,
    OnLostAnswer, OnServerError, Policy, PolicyError, ProbeId, RespondAsync, is_server_error,
};
pub use record::{
    AuditEntry, Audited, Draft, DraftState, Fence, Lease, Record, Retention, State, StateKind,
};
pub use rejection::{ProblemBase, ProblemBaseError, Rejection, RejectionKind};
pub use store::{
    AsyncTransactionalStore, BeginResult, BoxError, BoxFuture, Capabilities, Certainty, Change,
    Conclusion, Found, Guard, Inserted, Page, Query, Seen, StateFilter, Store, StoreError,
    StoreErrorKind, Swapped, Transacted, TransactionalStore, Write,
};
#[doc(hidden)]
pub use sync::lock;
pub use tenant::{RecordId, Tenant, TenantError};
pub use time::Timestamp;
pub use usage::{Usage, UsagePage, UsageSums};
