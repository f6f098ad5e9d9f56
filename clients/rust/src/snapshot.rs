//! An intent as it stands, for lists and for people.

use std::time::Duration;

use crate::end::End;
use crate::entry::Entry;
use crate::rules::Timestamp;

/// Stage of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No attempt was begun.
    Open,
    /// An attempt was begun, and there is no end.
    Sending,
    /// There is an end, which waits to be acknowledged.
    Ended,
}

/// An intent as it stood when it was read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Its stage.
    pub state: State,
    /// The number of attempts that were begun.
    pub attempts: u32,
    /// True if an attempt may have been carried out and no answer has settled what became of it.
    pub is_in_doubt: bool,
    /// The time of its opening.
    pub opened_at: Timestamp,
    /// The time of its first attempt.
    pub first_attempt_at: Option<Timestamp>,
    /// The time until which the server keeps the key, where it said so.
    pub key_expires_at: Option<Timestamp>,
    /// The time that is left to wait before the next attempt.
    pub wait_left: Duration,
    /// The lane of the queue in which it stands.
    pub lane: Option<String>,
    /// Its end.
    pub end: Option<End>,
}

impl Snapshot {
    pub(crate) fn of(entry: &Entry, wait_left: Duration) -> Self {
        Self {
            name: entry.name.clone(),
            state: entry.state(),
            attempts: entry.attempts,
            is_in_doubt: entry.doubt && entry.end.is_none(),
            opened_at: entry.opened_at,
            first_attempt_at: entry.first_attempt_at,
            key_expires_at: entry.expires_at,
            wait_left,
            lane: entry.place.as_ref().map(|place| place.lane.clone()),
            end: entry.end.clone(),
        }
    }
}
