//! Limits of the exploration of the outbox.
//!
//! Exploring everything at once has too many states. Each scope lets some things happen often and others
//! never, for one kind of destination.

use super::destination::Kind;

/// A kind of destination, and how far it is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    pub(super) kind: Kind,
    /// True if a client waits for the message.
    pub(super) is_awaited: bool,
    pub(super) limits: Limits,
}

/// Number of times that each thing may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Workers: one or two.
    pub(super) workers: usize,
    /// Steps of the clock before everything is calm.
    pub(super) ticks: u8,
    /// Deaths of workers.
    pub(super) crashes: u8,
    /// Answers and probes that are lost before their time is over.
    pub(super) losses: u8,
    /// Refusals.
    pub(super) refusals: u8,
    /// Deliveries that are put off, or find no connection.
    pub(super) put_offs: u8,
    /// Times the destination is left alone because of other messages.
    pub(super) openings: u8,
    /// Looks of an operator.
    pub(super) words: u8,
    /// Redrives.
    pub(super) redrives: u8,
    /// Deliveries that count before a message is given up.
    pub(super) deliveries: u32,
    /// True if an older copy of the store may be put back.
    pub(super) may_lose_history: bool,
}

/// Two workers that are slow, and a destination that refuses once.
const QUIET: Limits = Limits {
    workers: 2,
    ticks: 4,
    crashes: 0,
    losses: 0,
    refusals: 1,
    put_offs: 0,
    openings: 0,
    words: 0,
    redrives: 0,
    deliveries: 2,
    may_lose_history: false,
};

/// An older copy of the store is put back.
const PUT_BACK: Limits = Limits { refusals: 0, may_lose_history: true, ..QUIET };

/// One worker that dies and loses answers, and people.
const PEOPLE: Limits =
    Limits { workers: 1, crashes: 1, losses: 1, put_offs: 1, words: 1, redrives: 1, ..QUIET };

/// The destination is left alone.
const LEFT_ALONE: Limits = Limits { openings: 1, losses: 1, put_offs: 1, ..QUIET };

const fn scope(kind: Kind, is_awaited: bool, limits: Limits) -> Scope {
    Scope { kind, is_awaited, limits }
}

impl Scope {
    /// Seconds in a test build.
    pub const SHORT: &[Self] = &[
        scope(Kind::Forgetful, true, PEOPLE),
        scope(Kind::Forgetful, false, PEOPLE),
        scope(Kind::Forgetful, true, Limits { crashes: 1, ..QUIET }),
        scope(Kind::RecognisesKeys, true, Limits { losses: 1, ..QUIET }),
        scope(Kind::RecognisesKeys, true, Limits { workers: 1, ..PEOPLE }),
        scope(Kind::RecognisesKeys, true, Limits { workers: 1, ticks: 10, refusals: 0, ..QUIET }),
        scope(Kind::RecognisesKeys, false, Limits { workers: 1, ..LEFT_ALONE }),
        scope(Kind::RefusesByKey, true, Limits { losses: 1, ..QUIET }),
        scope(Kind::CanBeAsked, true, Limits { ticks: 8, refusals: 0, ..QUIET }),
        scope(Kind::CanBeAsked, true, PEOPLE),
        scope(Kind::Forgetful, true, PUT_BACK),
        scope(Kind::RecognisesKeys, true, PUT_BACK),
        scope(Kind::CanBeAsked, false, Limits { ticks: 8, ..PUT_BACK }),
        scope(Kind::Forgetful, false, Limits { may_lose_history: true, ..PEOPLE }),
    ];

    /// Minutes in a release build.
    pub const LONG: &[Self] = &[
        scope(Kind::Forgetful, true, Limits { workers: 2, ticks: 8, ..PEOPLE }),
        scope(Kind::Forgetful, false, Limits { workers: 2, ticks: 8, ..PEOPLE }),
        scope(Kind::Forgetful, true, Limits { ticks: 6, crashes: 1, ..LEFT_ALONE }),
        scope(Kind::RecognisesKeys, true, Limits { ticks: 8, crashes: 1, losses: 1, ..QUIET }),
        scope(Kind::RecognisesKeys, true, Limits { workers: 2, ticks: 5, ..PEOPLE }),
        scope(Kind::RecognisesKeys, false, Limits { workers: 2, ticks: 5, ..PEOPLE }),
        scope(Kind::RecognisesKeys, true, Limits { ticks: 11, ..QUIET }),
        scope(Kind::RecognisesKeys, true, Limits { ticks: 5, ..LEFT_ALONE }),
        scope(Kind::RefusesByKey, true, Limits { ticks: 8, crashes: 1, losses: 1, ..QUIET }),
        scope(Kind::RefusesByKey, true, Limits { ticks: 11, ..QUIET }),
        scope(Kind::RefusesByKey, false, Limits { workers: 2, ticks: 5, ..PEOPLE }),
        scope(Kind::CanBeAsked, true, Limits { workers: 2, ticks: 10, ..PEOPLE }),
        scope(Kind::CanBeAsked, false, Limits { workers: 2, ticks: 9, ..PEOPLE }),
        scope(Kind::CanBeAsked, true, Limits { ticks: 8, crashes: 1, ..LEFT_ALONE }),
        scope(Kind::RecognisesAndCanBeAsked, true, Limits { workers: 2, ticks: 10, ..PEOPLE }),
        scope(Kind::Forgetful, true, Limits { ticks: 10, losses: 1, ..PUT_BACK }),
        scope(Kind::RecognisesKeys, true, Limits { ticks: 11, losses: 1, ..PUT_BACK }),
        scope(Kind::RefusesByKey, true, Limits { ticks: 8, refusals: 1, ..PUT_BACK }),
        scope(Kind::CanBeAsked, true, Limits { ticks: 11, losses: 1, ..PUT_BACK }),
        scope(Kind::CanBeAsked, true, Limits { ticks: 9, may_lose_history: true, ..PEOPLE }),
        scope(Kind::RecognisesKeys, true, Limits { ticks: 6, may_lose_history: true, ..PEOPLE }),
    ];
}
