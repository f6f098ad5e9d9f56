//! The time for which an intent is sent at all.

use std::time::Duration;

use super::time::Timestamp;
use crate::end::{Cause, EndKind};

/// Nothing is sent in the last minute of a key's life: the request may take a while, and clocks differ.
const LAST_MINUTE: Duration = Duration::from_mins(1);
/// A clock may be corrected by so much without a doubt about the age of a key.
const CORRECTION_MAX: Duration = Duration::from_mins(1);

/// Settings of an intent's life.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time from the first attempt until the intent is given up.
    pub give_up_after: Duration,
    /// The time for which a server keeps a key, where it does not say so itself.
    pub retention: Duration,
}

/// Age of an intent, as its entry tells it.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// The time of the first attempt, if there was one.
    pub first_attempt_at: Option<Timestamp>,
    /// The time from which `give_up_after` counts where it is not the first attempt: of a resumption.
    pub resumed_at: Option<Timestamp>,
    /// The latest time at which the entry was written since the first attempt, where it is not that of the first.
    pub latest_at: Option<Timestamp>,
    /// The time until which the server keeps the key, where it said so.
    pub expires_at: Option<Timestamp>,
    /// True if an attempt may have been carried out.
    pub doubt: bool,
}

/// End of an intent that may not be sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Which of the four ends it is.
    pub end: EndKind,
    /// True if the action cannot happen twice under a new key.
    pub safe_new_key: bool,
    /// Reason for the end.
    pub cause: Cause,
}

/// Says how the intent ends because its time is up; `None` while it may be sent.
pub fn life(life: &Life, limits: &Limits, now: Timestamp) -> Option<Over> {
    let first = life.first_attempt_at?;
    if life.doubt && now.after(CORRECTION_MAX) < life.latest(first) {
        // The clock was set back, so the server may have forgotten the key for all that is known.
        let (end, cause) = (EndKind::Unknown, Cause::ClockSetBack);
        return Some(Over { end, safe_new_key: false, cause });
    }
    if life.key_time(limits, now).is_zero() {
        return Some(life.over(EndKind::Expired, Cause::KeyLife));
    }
    let since = life.resumed_at.unwrap_or(first);
    let is_given_up = life.at_least_now(now).since(since) >= limits.give_up_after;
    is_given_up.then(|| life.over(EndKind::Unknown, Cause::GivenUp))
}

/// The time for which a request may be under way, so that none arrives after the life of its key.
pub fn key_time(life: &Life, limits: &Limits, now: Timestamp) -> Duration {
    life.key_time(limits, now)
}

impl Life {
    /// The latest time that is known to have been.
    fn latest(&self, first: Timestamp) -> Timestamp {
        self.latest_at.map_or(first, |latest| latest.max(first))
    }

    /// The time of day, but none that is known to have passed.
    fn at_least_now(&self, now: Timestamp) -> Timestamp {
        let Some(first) = self.first_attempt_at else { return now };
        // What is not in doubt has no age at the server; a clock that was ahead once must not end it.
        now.max(if self.doubt { self.latest(first) } else { first })
    }

    /// The time until the last minute of the key.
    fn key_time(&self, limits: &Limits, now: Timestamp) -> Duration {
        let now = self.at_least_now(now);
        let first = self.first_attempt_at.unwrap_or(now);
        let expires_at = self.expires_at.unwrap_or_else(|| first.after(limits.retention));
        expires_at.since(now.after(LAST_MINUTE))
    }

    fn over(&self, end: EndKind, cause: Cause) -> Over {
        let end = if self.doubt { end } else { EndKind::Refused };
        Over { end, safe_new_key: !self.doubt, cause }
    }
}
