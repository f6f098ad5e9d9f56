//! Planted defects: mistakes at the seams of production, switched on one at a time. A world that none of them turns
//! red proves nothing.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The application's second `complete` under one fence is taken for a success: its rows are committed twice.
    SqlCompletesTwice,
    /// The application's completion keeps the outcome for the default time, whatever the policy said.
    SqlRetentionIsDefault,
    /// The application completes under whatever fence stands.
    SqlIgnoresFence,
    /// A release removes the record whatever fence it wears.
    ReleaseIgnoresFence,
    /// A completion is taken under any fence.
    CompleteIgnoresFence,
    /// A sweep frees lapsed attempts instead of marking them uncertain.
    SweepFrees,
    /// A mark of uncertainty is taken for a release.
    UncertainIsReleased,
    /// The store acknowledges a reservation before it is durable, and forgets it now and then.
    ReservationNotDurable,
    /// The store acknowledges a completion that it does not write.
    CompletionNotDurable,
    /// An operator believes that nothing happened as soon as the lease has ended.
    OperatorHasNoPatience,
    /// A probe's "no" is believed as soon as the attempt was given up.
    ProbeHasNoPatience,
    /// A sweep or a settlement frees a key without a note for clients that poll.
    SweepForgetsPollers,
    /// A release does.
    ReleaseForgetsPollers,
    /// An owner whose attempt a sweep marked uncertain may not complete it any more.
    LateOwnerIsRefused,
    /// A probe is asked of a replica that lags behind.
    ProbeLags,
    /// The upstream does not recognise repetitions although the policy says so.
    UpstreamForgetsKeys,
    /// A key that is not known runs although history was lost.
    UnknownIgnoresLoss,
    /// A key under which a note or an outcome past its time stands does.
    FreedIgnoresLoss,
    /// An answer that breaks off counts as a whole one.
    CutIsWhole,
    /// The statuses of an inner proxy that lost an answer count as the upstream's own errors.
    ProxyErrorIsUpstreams,
    /// The doubt about a message is dropped when it is claimed again.
    MessageDoubtDropped,
    /// A login or a router that answers in the destination's place is taken for its refusal.
    NotThereIsRefused,
    /// An absence acts in spite of what contradicts the account.
    AbsenceIgnoresEvidence,
    /// An absence acts although an entry without a usable key could be what is missing.
    NamelessIsNobodys,
    /// An account reaches to the moment at which it is read.
    AccountReachesToNow,
    /// A page without a cursor is the whole account.
    FirstPageIsAll,
    /// A payment that failed counts as made.
    FailedIsMade,
    /// A payment that is not decided counts as made.
    PendingIsMade,
    /// A payment that is older than its request is proof of it.
    OlderIsProof,
}

impl Defect {
    /// Every defect.
    pub const ALL: &'static [Self] = &[
        Self::SqlCompletesTwice,
        Self::SqlRetentionIsDefault,
        Self::SqlIgnoresFence,
        Self::ReleaseIgnoresFence,
        Self::CompleteIgnoresFence,
        Self::SweepFrees,
        Self::UncertainIsReleased,
        Self::ReservationNotDurable,
        Self::CompletionNotDurable,
        Self::OperatorHasNoPatience,
        Self::ProbeLags,
        Self::ProbeHasNoPatience,
        Self::SweepForgetsPollers,
        Self::ReleaseForgetsPollers,
        Self::LateOwnerIsRefused,
        Self::UpstreamForgetsKeys,
        Self::UnknownIgnoresLoss,
        Self::FreedIgnoresLoss,
        Self::CutIsWhole,
        Self::ProxyErrorIsUpstreams,
        Self::MessageDoubtDropped,
        Self::NotThereIsRefused,
        Self::AbsenceIgnoresEvidence,
        Self::NamelessIsNobodys,
        Self::AccountReachesToNow,
        Self::FirstPageIsAll,
        Self::FailedIsMade,
        Self::PendingIsMade,
        Self::OlderIsProof,
    ];

    /// The first seed, counted from 0, whose history shows it. A change of the world may move it: then it is
    /// looked for again.
    pub fn first_seed(self) -> u64 {
        match self {
            Self::SqlCompletesTwice | Self::ReleaseIgnoresFence => 7,
            Self::ProbeHasNoPatience => 17_370,
            Self::SweepForgetsPollers => 23,
            Self::ReleaseForgetsPollers => 976,
            Self::LateOwnerIsRefused => 5_625,
            Self::SqlRetentionIsDefault => 1_101,
            Self::UnknownIgnoresLoss => 24,
            Self::FreedIgnoresLoss => 47_438,
            Self::CutIsWhole => 12,
            Self::ProxyErrorIsUpstreams => 42,
            Self::SqlIgnoresFence => 273,
            Self::CompleteIgnoresFence => 905,
            Self::SweepFrees => 644,
            Self::UncertainIsReleased => 4,
            Self::ReservationNotDurable => 3,
            Self::CompletionNotDurable => 8,
            Self::FailedIsMade => 0,
            Self::OperatorHasNoPatience => 2_493,
            Self::ProbeLags => 263,
            Self::UpstreamForgetsKeys => 18,
            Self::MessageDoubtDropped => 110,
            Self::NotThereIsRefused => 48,
            Self::AbsenceIgnoresEvidence => 1_552,
            Self::NamelessIsNobodys => 2_450,
            Self::AccountReachesToNow => 7_035,
            Self::FirstPageIsAll => 2_410,
            Self::PendingIsMade => 8_550,
            Self::OlderIsProof => 602,
        }
    }
}
