//! The time for which an intent is sent at all.

use std::time::Duration;

use super::time::Timestamp;
use crate::end::EndKind;

/// Nothing is sent in the last minute of a key's life: the request may take a while, and clocks differ.
const LAST_MINUTE: Duration = Duration::from_mins(1);

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
    /// The time until which the server keeps the key, where it said so.
    pub expires_at: Option<Timestamp>,
    /// True if an attempt may have been carried out.
    pub doubt: bool,
}

/// Says how the intent ends because its time is up; `None` while it may be sent.
pub fn life(life: &Life, limits: &Limits, now: Timestamp) -> Option<(EndKind, bool)> {
    let first = life.first_attempt_at?;
    // A clock that went back since then tells no time before the first attempt.
    let now = now.max(first);
    let expires_at = life.expires_at.unwrap_or_else(|| first.after(limits.retention));
    let in_doubt = |end| if life.doubt { (end, false) } else { (EndKind::Refused, true) };
    if now.after(LAST_MINUTE) >= expires_at {
        return Some(in_doubt(EndKind::Expired));
    }
    let since = life.resumed_at.unwrap_or(first);
    let is_given_up = now.since(since) >= limits.give_up_after;
    is_given_up.then(|| in_doubt(EndKind::Unknown))
}
