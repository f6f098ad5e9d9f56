//! Events of a simulated history, and their counts.

/// Declares the events once: name and words.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident => $words:literal,)*) => {
        /// Something that a run must have tried.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = $words] $name,)*
        }

        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The event for a person.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

events! {
    Reserved => "a key was reserved",
    TakenOver => "a lapsed attempt was taken over",
    ExpiredTakenOver => "an expired outcome was taken over",
    Renewed => "a lease was renewed",
    Completed => "an outcome was kept",
    CompletedLate => "an uncertain record was completed by its owner",
    Freed => "a key was freed",
    MarkedUncertain => "a record became uncertain",
    FencedOff => "a write came too late and changed nothing",
    Reaped => "a record was reaped",
    StoreRefused => "the store refused a step",
    LostBefore => "a step was lost on its way to the store",
    LostAfter => "a step was applied and its acknowledgement lost",
    LateApplied => "a lost step arrived late",
    StoreAway => "the store went away",
    ClockStep => "the store's clock stepped",
    RetentionJump => "a day passed at once",
    HistoryLost => "an older record was put back",
    LossCleared => "a loss of history was cleared",
    LossRefused => "a key was refused because history was lost",
    Paused => "a process was paused",
    Killed => "a process was killed",
    Restarted => "a process was started anew",
    Called => "an upstream was called",
    NotSent => "an upstream could not be reached",
    Effect => "an effect happened",
    LateEffect => "an effect landed after its answer was given up",
    EffectThenError => "an effect was followed by a server error",
    ErrorWithoutEffect => "a server error without an effect",
    AnswerLost => "an upstream's answer was lost",
    CutAfterEffect => "an answer broke off after the effect",
    CutWithoutEffect => "an answer broke off without an effect",
    KeyRecognised => "an upstream recognised a repetition",
    CommitLost => "an application's COMMIT lost its acknowledgement",
    CommitRepeated => "an application repeated its transaction",
    AtomicCommitted => "an atomic handler committed",
    HungUp => "a caller hung up",
    ReplyLost => "an answer was lost on its way to the caller",
    Ran => "an answer of the first run",
    Replayed => "a replay",
    Accepted => "an early 202",
    Polled => "a poller was told a state",
    InProgress => "told in progress",
    Unknown => "told outcome unknown",
    Mismatch => "told mismatch",
    NothingRun => "told that nothing was run",
    PassedError => "an error was passed on",
    Swept => "a sweep found lapsed leases",
    OperatorHappened => "an operator settled: it happened",
    OperatorNot => "an operator settled: it did not",
    ProbeAsked => "a probe was asked",
    ProbeSettled => "a probe settled a record",
    MessageWritten => "a message was written",
    Carried => "a message was carried",
    CarriedTwice => "a message was carried again",
    DeliveryRefused => "a destination refused a message",
    DeliveryLost => "a delivery's answer was lost",
    MessageUnknown => "a message was held as unknown",
    FinalAnswer => "an interim answer was replaced",
    NotThere => "something else answered in a destination's place",
    BooksCompared => "an account was compared with the books",
    AccountFlawed => "an account was not whole",
    ProvedDelivered => "a reconciliation settled a message: delivered",
    ProvedCompleted => "a reconciliation completed a record",
    AbsenceResent => "an absence acted: a message is sent again",
    AbsenceFreed => "an absence acted: a key is free",
    AbsenceFound => "an absence stayed a finding",
    OtherLifeFound => "a payment of another life stayed a finding",
}

/// Number of times that each event happened.
#[derive(Clone, Debug)]
pub struct Events([u64; Event::ALL.len()]);

impl Default for Events {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

impl Events {
    /// Counts one.
    pub fn note(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// Returns the number of times that the event happened.
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
