//! Planted defects: mistakes at the seams of production, switched on one at a time. A world that none of them turns
//! red proves nothing.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The application's second `complete` under one fence is taken for a success: its rows are committed twice.
    SqlCompletesTwice,
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
    /// A probe is asked of a replica that lags behind.
    ProbeLags,
    /// The upstream does not recognise repetitions although the policy says so.
    UpstreamForgetsKeys,
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
        Self::SqlIgnoresFence,
        Self::ReleaseIgnoresFence,
        Self::CompleteIgnoresFence,
        Self::SweepFrees,
        Self::UncertainIsReleased,
        Self::ReservationNotDurable,
        Self::CompletionNotDurable,
        Self::OperatorHasNoPatience,
        Self::ProbeLags,
        Self::UpstreamForgetsKeys,
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
            Self::SqlCompletesTwice => 38,
            Self::SqlIgnoresFence => 26_691,
            Self::ReleaseIgnoresFence => 3,
            Self::CompleteIgnoresFence => 956,
            Self::SweepFrees => 10,
            Self::UncertainIsReleased => 4,
            Self::ReservationNotDurable => 1,
            Self::CompletionNotDurable => 12,
            Self::OperatorHasNoPatience => 438,
            Self::ProbeLags => 360,
            Self::UpstreamForgetsKeys => 26,
            Self::MessageDoubtDropped => 117,
            Self::NotThereIsRefused => 125,
            Self::AbsenceIgnoresEvidence => 398,
            Self::NamelessIsNobodys => 1_173,
            Self::AccountReachesToNow | Self::FirstPageIsAll => 1_131,
            Self::FailedIsMade => 167,
            Self::PendingIsMade => 30_172,
            Self::OlderIsProof => 602,
        }
    }
}
