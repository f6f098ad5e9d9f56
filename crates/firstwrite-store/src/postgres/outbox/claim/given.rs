//! The parameters of the statement that claims.

use firstwrite_core::Fence;
use firstwrite_core::outbox::ClaimRequest;
use tokio_postgres::types::ToSql;

use crate::postgres::Shared;
use crate::postgres::columns::At;
use crate::postgres::history::HistoryCheck;
use crate::postgres::outbox::hints::Hints;
use crate::postgres::outbox::intake::Turn;
use crate::postgres::outbox::parts::short_millis;

/// Beyond this, a number of messages that are wanted means all there are.
const COUNT_MAX: usize = 1_000_000;

/// The parameters of the statement.
pub(super) struct Given<'a> {
    names: Vec<&'a str>,
    counts: Vec<i64>,
    leases: Vec<i64>,
    due_from: Vec<At>,
    due_whole_at: Vec<At>,
    nonce: i64,
    lapsed: (At, At, At),
    turn: &'a Turn,
    asked: HistoryCheck,
    noted_starts: Option<&'a [i64]>,
    noted_stops: Option<&'a [i64]>,
    looked_at_max: i64,
}

impl<'a> Given<'a> {
    pub(super) fn new(
        shared: &Shared,
        requests: &'a [ClaimRequest],
        nonce: u64,
        (hints, turn, looked_at_max): (&Hints, &'a Turn, i64),
    ) -> Self {
        let due = requests.iter().map(|request| hints.due(&request.destination));
        let (due_from, due_whole_at) = due.unzip();
        let notes = turn.notes.as_ref();
        Self {
            names: requests.iter().map(|request| request.destination.as_str()).collect(),
            counts: requests
                .iter()
                .map(|request| i64::try_from(request.count_max.min(COUNT_MAX)).unwrap_or(i64::MAX))
                .collect(),
            leases: requests.iter().map(|request| short_millis(request.lease_for)).collect(),
            due_from,
            due_whole_at,
            // Only its nonce; the statement counts.
            nonce: (Fence::first(nonce).as_u64() ^ Fence::first(0).as_u64()).cast_signed(),
            lapsed: hints.lapsed(),
            turn,
            asked: shared.history_check(),
            noted_starts: notes.map(|kept| &kept.starts[..]),
            noted_stops: notes.map(|kept| &kept.stops[..]),
            looked_at_max,
        }
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 17] {
        [
            &self.names,
            &self.counts,
            &self.leases,
            &self.due_from,
            &self.due_whole_at,
            &self.nonce,
            &self.lapsed.0,
            &self.lapsed.1,
            &self.lapsed.2,
            &self.turn.ranges.starts,
            &self.turn.ranges.stops,
            &self.asked.incarnation,
            &self.noted_starts,
            &self.noted_stops,
            &self.looked_at_max,
            &self.asked.writer,
            &self.asked.sweeps,
        ]
    }
}
