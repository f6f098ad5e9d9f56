//! The entry of an intent: all that is known of it, and how it moves.

mod codec;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::end::End;
use crate::key::Key;
use crate::rules::{Dialect, Life, Timestamp, wait, wait_left};
use crate::snapshot::State;

pub(crate) use codec::{Unreadable, decode, encode, lane_of};

/// Everything that is written down of an intent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) request: Request,
    pub(crate) opened_at: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) doubt: bool,
    pub(crate) first_attempt_at: Option<Timestamp>,
    pub(crate) resumed_at: Option<Timestamp>,
    /// The latest time of a write since the first attempt, by which a clock that is set back is noticed.
    pub(crate) latest_at: Option<Timestamp>,
    /// Set by the first attempt: a server knows a key only as it was sent to it.
    pub(crate) spelling: Option<Spelling>,
    /// Nothing is sent before this, and never longer than `waits_for` from now on, whatever the clock says.
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) waits_for: Duration,
    pub(crate) expires_at: Option<Timestamp>,
    /// An answer showed that the server has a status resource, which a later process asks first.
    pub(crate) shows_status: bool,
    pub(crate) end: Option<End>,
    pub(crate) place: Option<Place>,
}

/// The form in which a key is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spelling {
    pub(crate) dialect: Dialect,
    pub(crate) header: HeaderName,
}

/// The request of an intent: what stays the same over its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    /// In the order of their names.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

/// The place of an intent in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lane: String,
    pub(crate) number: u64,
    /// `apply` has run.
    pub(crate) is_applied: bool,
    /// `confirm` or `rollback` has run after the end.
    pub(crate) is_settled: bool,
}

impl Entry {
    /// The entry with the mark of an attempt that begins now. What is recorded after the attempt replaces its
    /// back-off: only a process that dies before that leaves it to the next one.
    pub(crate) fn marked(&self, now: Timestamp, spelling: &Spelling, random: f64) -> Self {
        let attempts = self.attempts.saturating_add(1);
        Self {
            attempts,
            first_attempt_at: Some(self.first_attempt_at.unwrap_or(now)),
            spelling: Some(self.spelling.as_ref().unwrap_or(spelling).clone()),
            ..self.waiting(true, now, wait(Duration::ZERO, attempts, random))
        }
    }

    /// The entry after an answer that does not end it.
    pub(crate) fn waiting(&self, doubt: bool, now: Timestamp, waits_for: Duration) -> Self {
        let not_before = Some(now.after(waits_for));
        Self { doubt, not_before, waits_for, latest_at: Some(self.latest(now)), ..self.clone() }
    }

    /// Takes the wait of another entry of this intent where that ends later: of what two answers ask for, the later
    /// time stands.
    pub(crate) fn keep_later_wait(&mut self, other: &Self) {
        if other.not_before > self.not_before {
            (self.not_before, self.waits_for) = (other.not_before, other.waits_for);
        }
    }

    /// The entry after a failure that leaves it as if no attempt had been begun, but for their number.
    pub(crate) fn without_age(&self) -> Self {
        Self { first_attempt_at: None, resumed_at: None, latest_at: None, ..self.clone() }
    }

    fn latest(&self, now: Timestamp) -> Timestamp {
        self.latest_at.map_or(now, |latest| latest.max(now))
    }

    pub(crate) fn ended(&self, end: End) -> Self {
        Self { end: Some(end), not_before: None, waits_for: Duration::ZERO, ..self.clone() }
    }

    /// The entry of an unknown end that is sent again from now on.
    pub(crate) fn resumed(&self, now: Timestamp) -> Self {
        let latest_at = Some(self.latest(now));
        Self { end: None, doubt: true, resumed_at: Some(now), latest_at, ..self.clone() }
    }

    /// True of a refusal in a lane whose hook `rollback` has not run, or failed.
    pub(crate) fn owes_rollback(&self) -> bool {
        let is_settled = self.place.as_ref().is_none_or(|place| place.is_settled);
        matches!(self.end, Some(End::Refused(_))) && !is_settled
    }

    /// The time that is left to wait, where only the entry tells of it.
    pub(crate) fn wait_left(&self, now: Timestamp) -> Duration {
        wait_left(self.not_before, self.waits_for, now)
    }

    pub(crate) fn life(&self) -> Life {
        Life {
            first_attempt_at: self.first_attempt_at,
            resumed_at: self.resumed_at,
            latest_at: self.latest_at,
            expires_at: self.expires_at,
            doubt: self.doubt,
        }
    }

    pub(crate) fn state(&self) -> State {
        match (&self.end, self.attempts) {
            (Some(_), _) => State::Ended,
            (None, 0) => State::Open,
            (None, _) => State::Sending,
        }
    }
}

impl Request {
    /// Names what differs from another request. Headers that are not about its content may differ.
    pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            ("method", self.method == other.method),
            ("url", self.url == other.url),
            ("headers", self.content_headers().eq(other.content_headers())),
            ("body", self.body == other.body),
        ];
        parts.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
    }

    fn content_headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.headers.iter().filter(|(name, _)| name.as_str().starts_with("content-"))
    }
}
