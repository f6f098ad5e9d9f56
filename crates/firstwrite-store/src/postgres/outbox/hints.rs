//! Remembers where the last scan for due messages stopped, so that later scans skip dead index entries.
//!
//! Entries of messages that were claimed or settled stay in an index until vacuum removes them, which an old snapshot
//! prevents. So a hint remembers the time up to which everything was found, and a scan starts there. Every few
//! seconds one scan looks at everything again.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::{ClaimRequest, MessageNumber};

use crate::postgres::columns::At;

/// Start positions of this process's scans.
#[derive(Debug, Default)]
pub(super) struct Hints {
    due: HashMap<String, Hint>,
    lapsed: Option<Hint>,
    /// Leases are not looked at again before this.
    lapsed_next: Option<Timestamp>,
}

/// Ends of the leases that this process holds and has not settled, so that it finds its own at once when they run
/// out. It looks for those of other processes every second.
#[derive(Debug, Default)]
pub(super) struct Leases {
    ends: BTreeSet<(Timestamp, MessageNumber)>,
    of: HashMap<MessageNumber, Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint {
    /// Everything due before this was found.
    from: Timestamp,
    /// Time from which everything is looked at again.
    whole_at: Timestamp,
}

/// Maximum delay until a message that was due before a scan becomes visible: its due time is chosen before the commit.
const LATE_FOR: Duration = Duration::from_secs(2);

/// Interval of full scans, which find messages that become visible even later.
const WHOLE_EVERY: Duration = Duration::from_secs(10);

/// Interval of scans for claims that ran out.
const LAPSED_EVERY: Duration = Duration::from_secs(1);

impl Hints {
    /// Returns the time from which to look for due messages of a destination, and the time until which that holds.
    pub(super) fn due(&self, destination: &str) -> (At, At) {
        self.due.get(destination).map_or((At::Never, At::Never), |hint| hint.columns())
    }

    /// Returns the same for leases that ran out, and the time before which not to look for them.
    pub(super) fn lapsed(&self) -> (At, At, At) {
        let (from, whole_at) = self.lapsed.map_or((At::Never, At::Never), Hint::columns);
        (from, whole_at, self.lapsed_next.map_or(At::Never, At::Instant))
    }

    /// Notes that everything that was due at these destinations at `now` was found.
    pub(super) fn found_all(&mut self, exhausted: &[String], now: Timestamp) {
        for destination in exhausted {
            match self.due.get_mut(destination) {
                Some(hint) => *hint = hint.moved(now),
                None => drop(self.due.insert(destination.clone(), Hint::new(now))),
            }
        }
    }

    /// A claim of this process stands until then.
    pub(super) fn not_later_than(&mut self, next: Option<Timestamp>) {
        if let (Some(known), Some(next)) = (self.lapsed_next, next) {
            self.lapsed_next = Some(known.min(next));
        }
    }

    /// Leases were looked at, if it was time, and so many had run out.
    pub(super) fn looked_for_lapsed(
        &mut self,
        requests: &[ClaimRequest],
        found: i64,
        now: Timestamp,
    ) {
        let is_early = self.lapsed_next.is_some_and(|next| now < next);
        let was_set_back = self.lapsed.is_some_and(|hint| now < hint.from);
        if requests.is_empty() || is_early && !was_set_back {
            return;
        }
        if found > 0 {
            // Not all of them may have been wanted.
            self.lapsed = None;
            self.lapsed_next = None;
            return;
        }
        self.lapsed = Some(self.lapsed.map_or_else(|| Hint::new(now), |hint| hint.moved(now)));
        self.lapsed_next = Some(now.plus(LAPSED_EVERY));
    }
}

impl Leases {
    /// A message was claimed.
    pub(super) fn begin(&mut self, number: MessageNumber, until: Timestamp) {
        self.end(number);
        self.ends.insert((until, number));
        self.of.insert(number, until);
    }

    /// Removes the lease of a message that was settled.
    pub(super) fn end(&mut self, number: MessageNumber) {
        if let Some(until) = self.of.remove(&number) {
            self.ends.remove(&(until, number));
        }
    }

    /// Returns the time when the next lease runs out. Forgets those that already have: they are no longer this
    /// process's own.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Timestamp> {
        while let Some(&(until, number)) = self.ends.first() {
            if until > now {
                return Some(until);
            }
            self.end(number);
        }
        None
    }
}

impl Hint {
    fn new(now: Timestamp) -> Self {
        Self { from: before(now), whole_at: now.plus(WHOLE_EVERY) }
    }

    /// After another look at `now`.
    fn moved(self, now: Timestamp) -> Self {
        let was_used = self.from <= now && now < self.whole_at;
        if was_used { Self { from: before(now), ..self } } else { Self::new(now) }
    }

    fn columns(self) -> (At, At) {
        (At::Instant(self.from), At::Instant(self.whole_at))
    }
}

fn before(now: Timestamp) -> Timestamp {
    let late = as_i64(LATE_FOR.as_millis());
    Timestamp::from_millis(now.as_millis().saturating_sub(late))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn request() -> [ClaimRequest; 1] {
        let lease_for = Duration::from_secs(30);
        [ClaimRequest { destination: "d".to_owned(), count_max: 1, lease_for }]
    }

    #[test]
    fn looks_begin_where_everything_was_found_and_now_and_then_at_the_beginning() {
        let mut hints = Hints::default();
        let from = |hints: &Hints| hints.due("d").0.instant();
        assert_eq!(from(&hints), None);
        hints.found_all(&["d".to_owned()], at(100));
        assert_eq!(hints.due("d"), (At::Instant(at(98)), At::Instant(at(110))));
        hints.found_all(&["d".to_owned()], at(109));
        assert_eq!(hints.due("d"), (At::Instant(at(107)), At::Instant(at(110))));
        // The server looked at everything, since it was time.
        hints.found_all(&["d".to_owned()], at(111));
        assert_eq!(hints.due("d"), (At::Instant(at(109)), At::Instant(at(121))));
        // As it does when its clock was set back.
        hints.found_all(&["d".to_owned()], at(50));
        assert_eq!(hints.due("d"), (At::Instant(at(48)), At::Instant(at(60))));
    }

    #[test]
    fn a_claim_of_ones_own_that_runs_out_is_looked_for_at_once() {
        let (mut hints, mut leases) = (Hints::default(), Leases::default());
        for (number, until) in [(1, 90), (2, 130), (3, 101)] {
            leases.begin(MessageNumber(number), at(until));
        }
        leases.end(MessageNumber(3));
        leases.begin(MessageNumber(4), Timestamp::from_millis(100_200));
        hints.looked_for_lapsed(&request(), 0, at(100));
        hints.not_later_than(leases.next(at(100)));
        assert_eq!(hints.lapsed().2, At::Instant(Timestamp::from_millis(100_200)));
        leases.end(MessageNumber(4));
        assert_eq!(leases.next(at(100)), Some(at(130)));
        assert_eq!((leases.next(at(130)), leases.of.len()), (None, 0));
    }

    #[test]
    fn leases_are_looked_at_every_second_and_at_once_while_some_run_out() {
        let mut hints = Hints::default();
        hints.looked_for_lapsed(&request(), 0, at(100));
        assert_eq!(hints.lapsed().2, At::Instant(at(101)));
        hints.looked_for_lapsed(&request(), 0, at(100));
        assert_eq!(hints.lapsed().0, At::Instant(at(98)));
        hints.looked_for_lapsed(&request(), 3, at(101));
        assert_eq!(hints.lapsed(), (At::Never, At::Never, At::Never));
        hints.looked_for_lapsed(&[], 0, at(102));
        assert_eq!(hints.lapsed().2, At::Never, "nothing was wanted, so nothing was looked for");
    }
}
