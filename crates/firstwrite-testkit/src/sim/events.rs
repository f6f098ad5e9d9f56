//! Events of a simulated history, and their counts.

/// Something that a run must have tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An attempt was granted and ran.
    Ran,
    /// A retry got the first answer.
    Replayed,
    /// A duplicate met an attempt in progress.
    InProgress,
    /// Another request met a used key.
    Mismatch,
    /// A retry was told that the outcome is unknown.
    ToldUncertain,
    /// A lapsed attempt was taken over.
    TakenOver,
    /// An expired outcome was taken over.
    ExpiredTakenOver,
    /// The key was released after a 5xx.
    Released,
    /// A lease was renewed.
    Renewed,
    /// A renewal came too late.
    RenewalLost,
    /// A record became uncertain.
    BecameUncertain,
    /// The owner completed an uncertain record late.
    CompletedLate,
    /// A late owner was refused by its fence.
    ZombieRefused,
    /// An operator settled that it happened.
    SettledHappened,
    /// An operator settled that it did not happen.
    SettledNotHappened,
    /// A sweep freed a key.
    SweptFree,
    /// A sweep marked a record uncertain.
    SweptUncertain,
    /// A record was reaped.
    Reaped,
    /// A task crashed.
    Crashed,
    /// The clock jumped past a lease.
    LeaseJump,
    /// The clock jumped past retention.
    RetentionJump,
    /// A step was lost on its way to the store.
    LostBefore,
    /// A step was applied and its acknowledgement lost.
    LostAfter,
    /// A move ended right although an acknowledgement of its own was lost.
    LostRecovered,
    /// A lost step was applied late.
    LateApplied,
    /// A lost step arrived late and was refused.
    LateRefused,
    /// An atomic attempt was committed.
    AtomicKept,
    /// An atomic attempt was rolled back.
    AtomicRolledBack,
    /// An atomic attempt was committed and its acknowledgement lost.
    AtomicLostAfter,
    /// An atomic attempt kept a 4xx without its rows.
    AtomicClientError,
}

/// Number of times each event happened.
#[derive(Clone, Debug, Default)]
pub struct Events([u64; Event::ALL.len()]);

impl Event {
    /// Every event.
    pub const ALL: [Self; 30] = [
        Self::Ran,
        Self::Replayed,
        Self::InProgress,
        Self::Mismatch,
        Self::ToldUncertain,
        Self::TakenOver,
        Self::ExpiredTakenOver,
        Self::Released,
        Self::Renewed,
        Self::RenewalLost,
        Self::BecameUncertain,
        Self::CompletedLate,
        Self::ZombieRefused,
        Self::SettledHappened,
        Self::SettledNotHappened,
        Self::SweptFree,
        Self::SweptUncertain,
        Self::Reaped,
        Self::Crashed,
        Self::LeaseJump,
        Self::RetentionJump,
        Self::LostBefore,
        Self::LostAfter,
        Self::LostRecovered,
        Self::LateApplied,
        Self::LateRefused,
        Self::AtomicKept,
        Self::AtomicRolledBack,
        Self::AtomicLostAfter,
        Self::AtomicClientError,
    ];

    /// The event for a person.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ran => "attempts ran",
            Self::Replayed => "replayed",
            Self::InProgress => "met one in progress",
            Self::Mismatch => "mismatch",
            Self::ToldUncertain => "told uncertain",
            Self::TakenOver => "lapsed taken over",
            Self::ExpiredTakenOver => "expired taken over",
            Self::Released => "released",
            Self::Renewed => "renewed",
            Self::RenewalLost => "renewal too late",
            Self::BecameUncertain => "became uncertain",
            Self::CompletedLate => "uncertain completed by owner",
            Self::ZombieRefused => "zombie refused",
            Self::SettledHappened => "settled: it happened",
            Self::SettledNotHappened => "settled: it did not",
            Self::SweptFree => "swept free",
            Self::SweptUncertain => "swept uncertain",
            Self::Reaped => "reaped",
            Self::Crashed => "crashes",
            Self::LeaseJump => "clock past a lease",
            Self::RetentionJump => "clock past retention",
            Self::LostBefore => "lost on the way there",
            Self::LostAfter => "applied, word lost",
            Self::LostRecovered => "recovered from a lost word",
            Self::LateApplied => "arrived late and applied",
            Self::LateRefused => "arrived late and refused",
            Self::AtomicKept => "atomic kept",
            Self::AtomicRolledBack => "atomic rolled back",
            Self::AtomicLostAfter => "atomic kept, word lost",
            Self::AtomicClientError => "atomic 4xx without rows",
        }
    }
}

impl Events {
    /// Counts one.
    pub fn note(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// Returns the number of times an event happened.
    pub fn count(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Adds another history's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}
