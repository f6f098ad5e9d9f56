//! Finding reservations whose lease ran out.
//!
//! Most of what the index of leases holds has ended long ago: its row stays until it is reaped. So a
//! pass remembers how far everything has been looked at, and the next one begins there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::Pool;
use firstwrite_core::{Found, Query, StoreError, Timestamp};

use super::Shared;
use super::columns::At;
use super::doubt::greet;
use super::fault::{definite, no_connection};
use super::link::Held;
use super::rows::Looked;

/// How far the leases have been looked at.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    progress: Mutex<Option<Progress>>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Everything whose lease ran out before this was looked at.
    from: Timestamp,
    /// When everything was last looked at, from the beginning.
    whole_at: Timestamp,
}

/// A reservation may become visible this long after its lease was counted, and with a short lease it is
/// over by then. A transaction of ours takes far less.
const LATE_FOR: Duration = Duration::from_mins(1);

/// After this long everything is looked at again: for clocks that were set back, and for what nobody
/// thought of.
const WHOLE_EVERY: Duration = Duration::from_hours(1);

const DOING: &str = "looking for lapsed leases";

/// See [`firstwrite_core::Store::lapsed`].
pub(super) async fn lapsed(
    shared: &Shared,
    pool: &Pool,
    limit: usize,
) -> Result<Vec<Found>, StoreError> {
    let limit = limit.min(Query::LIMIT_MAX);
    let held = Held::new(pool.get().await.map_err(|error| no_connection(DOING)(&error))?);
    let link = held.link(shared);
    let (sql, begins) = (link.sql(), shared.server.begins());
    // Now and then, so that the mark follows when a standby comes or goes.
    greet(shared, link.client).await.map_err(definite(DOING))?;
    let clock = link.alone(&begins.read, &sql.now, &[]).await.map_err(definite(DOING))?;
    let now = clock.first().and_then(|row| row.try_get::<_, At>(0).ok()).and_then(At::instant);
    let now = now.ok_or_else(|| super::fault::corrupt("the clock has stopped"))?;
    let from = shared.sweep.from(now);
    let since = from.map_or(At::Never, At::Instant);
    let row_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = link
        .alone(&begins.read, &sql.lapsed, &[&since, &row_max])
        .await
        .map_err(definite(DOING))?;
    let looked = link.read(&rows).await.map_err(definite(DOING))?;
    held.settle();
    let lapsed: Vec<Found> = looked.into_iter().filter_map(Looked::found).collect();
    let earliest = lapsed.iter().filter_map(|found| found.record.state.lease_until()).min();
    shared.sweep.looked(now, from, earliest);
    Ok(lapsed)
}

impl Sweep {
    /// Where to begin; nowhere in particular if everything is due to be looked at.
    fn from(&self, now: Timestamp) -> Option<Timestamp> {
        let progress = (*self.progress())?;
        let is_due = now.since(progress.whole_at) >= WHOLE_EVERY || now < progress.whole_at;
        (!is_due).then_some(progress.from)
    }

    /// What was found is looked at again until somebody has changed it.
    fn looked(&self, now: Timestamp, from: Option<Timestamp>, earliest: Option<Timestamp>) {
        let late = i64::try_from(LATE_FOR.as_millis()).unwrap_or(i64::MAX);
        let reached = Timestamp::from_millis(now.as_millis().saturating_sub(late));
        let reached = earliest.map_or(reached, |earliest| earliest.min(reached));
        let mut progress = self.progress();
        let whole_at = match (from, *progress) {
            (Some(_), Some(progress)) => progress.whole_at,
            (Some(_) | None, None) | (None, Some(_)) => now,
        };
        *progress = Some(Progress { from: reached, whole_at });
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn progress(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn what_was_looked_at_is_left_alone_until_the_hour_is_over() {
        let sweep = Sweep::default();
        assert_eq!(sweep.from(at(1000)), None);
        sweep.looked(at(1000), None, None);
        assert_eq!(sweep.from(at(1010)), Some(at(940)));
        sweep.looked(at(1010), Some(at(940)), None);
        assert_eq!(sweep.from(at(4599)), Some(at(950)));
        assert_eq!(sweep.from(at(4600)), None);
    }

    #[test]
    fn what_was_found_is_found_again_until_it_is_changed() {
        let sweep = Sweep::default();
        sweep.looked(at(1000), None, Some(at(500)));
        assert_eq!(sweep.from(at(1001)), Some(at(500)));
    }

    #[test]
    fn a_clock_that_was_set_back_has_everything_looked_at() {
        let sweep = Sweep::default();
        sweep.looked(at(1000), None, None);
        assert_eq!(sweep.from(at(900)), None);
    }
}
