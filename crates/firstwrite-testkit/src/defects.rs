//! Planted defects: mistakes that stores and their users really make, switched on one at a time.
//!
//! A check that no defect turns red proves nothing. [`catch`] says which part of the suite finds a
//! defect; a defect that nothing finds is a hole in the suite.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::BoxFuture;

use crate::conformance;
use crate::history::{HistoryOptions, check_store};
use crate::sim::{self, Plan};
use crate::{ManualClock, Subject};

mod documents;
mod outbox;
mod store;
mod subject;

pub use store::DefectiveStore;
pub(crate) use store::yield_once;
pub use subject::DefectiveSubject;

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// An insert looks first and writes afterwards.
    CheckThenInsert,
    /// An owner's write is accepted under any fence.
    NoFenceCompare,
    /// An owner's write is accepted in any state.
    OwnerGuardIgnoresState,
    /// A judged record is changed although it was renewed in between.
    SeenGuardIgnoresRenewal,
    /// A copy of another store's record is as young as the copying.
    CopyForgetsItsAge,
    /// A copy of an uncertain record is uncertain since the copying.
    CopyIsUncertainSinceNow,
    /// A copy of an audit entry is as young as the copying.
    CopiedNoteIsNew,
    /// A judged record is changed although its state moved in between.
    SeenGuardIgnoresState,
    /// Any caller can complete a completed record again.
    CompletedCanChange,
    /// A heartbeat makes an uncertain record reserved again.
    RenewRevivesUncertain,
    /// A take-over goes on under the fence of what it took over.
    TakeOverKeepsOldFence,
    /// The reaper deletes old records whatever their state.
    ReaperIgnoresState,
    /// The reaper deletes completed records as soon as it sees them.
    ReaperIgnoresKeptUntil,
    /// The reaper deletes everything that is due, whatever its limit.
    ReaperIgnoresLimit,
    /// A sweep is shown live leases too.
    LapsedIgnoresTime,
    /// Leases end by a clock that is an hour ahead of the store's.
    LeaseByCallerClock,
    /// Leases end by a clock that is a little behind the store's.
    LeaseByLaggingClock,
    /// The outcome is kept only as long as a lease.
    RetentionEqualsLease,
    /// The retention that a reservation was made with is forgotten.
    RetentionForgotten,
    /// A record is called uncertain since it was made.
    UncertainSinceCreation,
    /// A note of a release is kept as an answer that was not kept.
    ReleasedAsTombstone,
    /// Records are kept by key alone.
    ForgetsTenant,
    /// A tenant's listing shows the records of all tenants.
    ListForgetsTenant,
    /// The last record of every page but the last is left out.
    ListSkipsLastOfPage,
    /// The usage of several tenants is counted as one's.
    UsageMixesTenants,
    /// Outcomes are not counted.
    UsageForgetsBytes,
    /// Counting ends with the second page.
    UsageEndsEarly,
    /// Headers are kept in a map, so repetition is lost.
    HeadersInMap,
    /// Bodies are kept as text.
    BodyAsText,
    /// A tombstone comes back as an empty body.
    TombstoneAsEmptyBody,
    /// Fingerprints come back without their parts.
    PartDigestsDropped,
    /// An audit entry is written whether or not the change was.
    AuditWithoutChange,
    /// The change is written without its audit entry.
    ChangeWithoutAudit,
    /// The newest write is acknowledged before it is durable.
    AckBeforeWrite,
    /// A panic in the handler commits the rows it wrote so far.
    PanicCommitsRows,
    /// A 4xx commits the rows of the handler.
    ClientErrorCommitsRows,
    /// The attempt answers its client before the record is written.
    ReplyBeforeRecord,
    /// The effect is sent before the key is reserved.
    EffectBeforeReserve,
    /// An attempt that came too late answers all the same.
    ReplyDespiteLate,
    /// The sweep frees every lapsed key, also where the effect may have happened.
    SweepFreesAll,
    /// A failed reservation is taken as granted: the handler runs unprotected.
    FailOpen,
    /// A different request under a used key is answered with the stored outcome.
    MismatchReplays,
    /// A claimed message can be claimed again at once.
    ClaimWithoutLease,
    /// A claim takes more than is wanted.
    ClaimTakesTooMany,
    /// A claim that ran out leaves no trace: the message looks as if never sent.
    LapseForgotten,
    /// The next worker to claim a message does not see its receipt.
    ReceiptForgotten,
    /// A late worker settles a message that another worker has claimed.
    SettleIgnoresFence,
    /// A message that may have arrived comes back as if it had not.
    DoubtForgotten,
    /// A message whose delivery is unknown is sent again.
    UnknownComesBack,
    /// A message that a lost history may have sent is settled under the claim that it had.
    MarkLeavesClaim,
    /// A message that a lost history may have sent is claimed while that delivery may be under way.
    MarkWithoutRest,
    /// A message that a lost history may have sent can be sent again as soon as its predecessor has ended.
    SuccessorWithoutRest,
    /// A dead letter that a lost history may have sent can be sent again as soon as it is put back.
    RedriveWithoutRest,
    /// A message that a lost history may have sent counts as sent later than it can have been.
    MarkIsYoung,
    /// A message that a client was told will never be sent becomes a dead letter, so that it can be redriven.
    RefusedIsDead,
    /// Messages under one ordering key leave together.
    OrderIgnored,
    /// A destination that is to be left alone is not.
    BreakerIgnored,
    /// Messages look as if they had been written at the beginning of time.
    WrittenAtForgotten,
    /// A message that was sent again looks as if it had been sent at first only.
    HandledAtFirst,
    /// A document is replaced or removed whatever its version.
    DocumentVersionIgnored,
    /// A document is added in place of one with the same name.
    DocumentOverwritten,
    /// A document never expires.
    DocumentExpiryForgotten,
    /// Documents are shown as expired before their time.
    DocumentExpiresEarly,
    /// The last document of every page but the last is left out.
    DocumentScanSkipsLast,
    /// Every finding comes back as one of the same kind.
    FindingKindForgotten,
    /// A finding that was accepted is open again at the next run.
    AcceptedComesBack,
    /// A finding that was fixed and comes back stays closed.
    FixedStaysClosed,
    /// A finding is opened again by a run that began before it was closed.
    OldSightReopens,
    /// A scan returns more messages than was asked for.
    ScanIgnoresLimit,
    /// The last message of every scan but the last is left out.
    ScanSkipsLast,
    /// A row of a message's history is written although the guard of its move does not hold.
    RowIgnoresGuard,
    /// A message that was found to have arrived has no row in its history that says so.
    FoundIsNotTold,
    /// A destination is paused without an audit entry.
    PauseWithoutAudit,
    /// A pause is ended without an audit entry.
    ResumeWithoutAudit,
    /// A result found about one delivery settles a later one.
    ResolveIgnoresFence,
    /// An interim answer is never replaced.
    InterimForEver,
    /// Delivered messages are deleted at once.
    MessagesDeletedEarly,
}

/// Which part of the suite caught a defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Catcher {
    /// A conformance case, by name.
    Conformance(&'static str),
    /// A concurrent history, by seed.
    History(u64),
    /// The simulator, by seed.
    Simulation(u64),
}

/// Histories tried on a defect before it counts as missed.
const HISTORIES_MAX: u64 = 50;
/// Simulated histories tried on a defect before it counts as missed.
const SIMULATIONS_MAX: u64 = 20_000;

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 77] = [
        Self::CheckThenInsert,
        Self::NoFenceCompare,
        Self::OwnerGuardIgnoresState,
        Self::SeenGuardIgnoresRenewal,
        Self::CopyForgetsItsAge,
        Self::CopyIsUncertainSinceNow,
        Self::CopiedNoteIsNew,
        Self::SeenGuardIgnoresState,
        Self::CompletedCanChange,
        Self::RenewRevivesUncertain,
        Self::TakeOverKeepsOldFence,
        Self::ReaperIgnoresState,
        Self::ReaperIgnoresKeptUntil,
        Self::ReaperIgnoresLimit,
        Self::LapsedIgnoresTime,
        Self::LeaseByCallerClock,
        Self::LeaseByLaggingClock,
        Self::RetentionEqualsLease,
        Self::RetentionForgotten,
        Self::UncertainSinceCreation,
        Self::ReleasedAsTombstone,
        Self::ForgetsTenant,
        Self::ListForgetsTenant,
        Self::ListSkipsLastOfPage,
        Self::UsageMixesTenants,
        Self::UsageForgetsBytes,
        Self::UsageEndsEarly,
        Self::HeadersInMap,
        Self::BodyAsText,
        Self::TombstoneAsEmptyBody,
        Self::PartDigestsDropped,
        Self::AuditWithoutChange,
        Self::ChangeWithoutAudit,
        Self::AckBeforeWrite,
        Self::PanicCommitsRows,
        Self::ClientErrorCommitsRows,
        Self::ReplyBeforeRecord,
        Self::EffectBeforeReserve,
        Self::ReplyDespiteLate,
        Self::SweepFreesAll,
        Self::FailOpen,
        Self::MismatchReplays,
        Self::ClaimWithoutLease,
        Self::ClaimTakesTooMany,
        Self::LapseForgotten,
        Self::ReceiptForgotten,
        Self::SettleIgnoresFence,
        Self::DoubtForgotten,
        Self::UnknownComesBack,
        Self::MarkLeavesClaim,
        Self::MarkWithoutRest,
        Self::SuccessorWithoutRest,
        Self::RedriveWithoutRest,
        Self::MarkIsYoung,
        Self::RefusedIsDead,
        Self::OrderIgnored,
        Self::BreakerIgnored,
        Self::WrittenAtForgotten,
        Self::HandledAtFirst,
        Self::DocumentVersionIgnored,
        Self::DocumentOverwritten,
        Self::DocumentExpiryForgotten,
        Self::DocumentExpiresEarly,
        Self::DocumentScanSkipsLast,
        Self::FindingKindForgotten,
        Self::AcceptedComesBack,
        Self::FixedStaysClosed,
        Self::OldSightReopens,
        Self::ScanIgnoresLimit,
        Self::ScanSkipsLast,
        Self::RowIgnoresGuard,
        Self::FoundIsNotTold,
        Self::PauseWithoutAudit,
        Self::ResumeWithoutAudit,
        Self::ResolveIgnoresFence,
        Self::InterimForEver,
        Self::MessagesDeletedEarly,
    ];

    /// Returns true if the mistake is in the use of a store, where only the simulator can see it.
    pub fn is_of_the_user(self) -> bool {
        matches!(
            self,
            Self::ReplyBeforeRecord
                | Self::EffectBeforeReserve
                | Self::ReplyDespiteLate
                | Self::SweepFreesAll
                | Self::FailOpen
                | Self::MismatchReplays
        )
    }
}

/// Runs the suite on a defect until one part of it turns red.
pub async fn catch(defect: Defect) -> Option<Catcher> {
    if !defect.is_of_the_user() {
        let report = conformance::run_all(|| planted(Some(defect)), "").await;
        if let Some((name, _)) = report.failed.first() {
            return Some(Catcher::Conformance(name));
        }
        if let Some(seed) = red_history(defect).await {
            return Some(Catcher::History(seed));
        }
    }
    red_simulation(defect).map(Catcher::Simulation)
}

/// The first seed whose concurrent history shows the defect.
pub async fn red_history(defect: Defect) -> Option<u64> {
    for seed in 0..HISTORIES_MAX {
        let store = Arc::new(DefectiveStore::new(ManualClock::new(), Some(defect)));
        if check_store(store, seed, HistoryOptions::default()).await.is_err() {
            return Some(seed);
        }
    }
    None
}

/// The first seed whose simulated history shows the defect.
pub fn red_simulation(defect: Defect) -> Option<u64> {
    (0..SIMULATIONS_MAX).find(|seed| {
        let plan = Plan { defect: Some(defect), ..Plan::default() };
        sim::run(*seed, plan).violation.is_some()
    })
}

/// A factory of subjects with one defect, or with none: the sound twin passes everything.
pub fn planted(defect: Option<Defect>) -> BoxFuture<'static, Arc<dyn Subject>> {
    Box::pin(async move { Arc::new(DefectiveSubject::new(defect)) as Arc<dyn Subject> })
}

impl fmt::Display for Catcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conformance(name) => write!(f, "conformance {name}"),
            Self::History(seed) => write!(f, "history of seed {seed}"),
            Self::Simulation(seed) => write!(f, "simulation of seed {seed}"),
        }
    }
}
