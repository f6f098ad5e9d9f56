//! Finds reservations whose lease ran out.
//!
//! Most entries of the index of leases ended long ago: their rows stay until they are reaped. So a pass
//! remembers up to which lease everything has been examined, and the next one begins there.
//!
//! A reservation is visible only when its transaction has committed, and an application may take its time:
//! the lease can be over by then. So a pass advances only to the position of an earlier one whose writers
//! have all ended.

use std::sync::Mutex;
use std::time::Duration;

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{Page, Query, StoreError, Tenant, Timestamp, lock};

use super::Inner;
use super::columns::At;
use super::driver_error::definite;
use super::history_loss::{count_sweep, verify_history};
use super::link::PooledTransaction;
use super::rows::{CLOCK_STOPPED, column, instant, only};
use crate::Access;

/// Progress of the sweeps through expired leases.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    progress: Mutex<Option<Progress>>,
}

#[derive(Debug)]
struct Progress {
    /// Lease time before which every expired lease was examined; `None` if none was.
    from: Option<Timestamp>,
    /// Time of the last sweep that looked at everything from the beginning.
    whole_at: Timestamp,
    /// The pass whose writers are waited for.
    waits_for: Pass,
}

/// State of the server when a pass began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pass {
    at: Timestamp,
    /// The transactions that wrote records then, by their virtual ids. All others wrote later.
    writers: Vec<String>,
}

/// A statement may count a lease this long before the record is written, and clocks are set back a little.
const LATE_FOR: Duration = Duration::from_mins(1);

/// Interval after which everything is examined again: for clocks that were set back, and for unforeseen
/// cases.
const WHOLE_EVERY: Duration = Duration::from_hours(1);

const DOING: &str = "looking for lapsed leases";

impl Inner {
    /// See [`firstwrite_core::StateFilter::Lapsed`].
    pub(super) async fn lapsed(&self, query: &Query) -> Result<Page, StoreError> {
        let shared = &self.shared;
        let limit = query.limit.clamp(1, Query::LIMIT_MAX);
        let tenant = query.tenant.as_ref().map(Tenant::as_str);
        let held = PooledTransaction::take(shared, DOING).await?;
        let link = held.link();
        let (sql, begins) = (link.sql(), shared.server.begins());
        // Now and then, so that the mark follows when a standby comes or goes.
        verify_history(link).await.map_err(definite(DOING))?;
        if shared.server.access == Access::Write {
            count_sweep(&link).await.map_err(definite(DOING))?;
        }
        let clock =
            link.alone(&begins.read, &sql.sweep_clock, &[]).await.map_err(definite(DOING))?;
        let clock = only(&clock, CLOCK_STOPPED)?;
        let pass = Pass { at: instant(clock, 0)?, writers: column(clock, 1)? };
        let from = shared.sweep.from(pass.at);
        let since = from.map_or(At::Never, At::Instant);
        let row_max = as_i64(limit);
        let rows = link.alone(&begins.read, &sql.lapsed, &[&since, &tenant, &row_max]).await;
        let rows = rows.map_err(definite(DOING))?;
        let results = link.read(&rows).await.map_err(definite(DOING))?;
        held.settle();
        let records: Vec<_> = results.into_iter().filter_map(|result| result.record).collect();
        let now = pass.at;
        // Other tenants' leases have not been examined.
        if tenant.is_none() {
            let earliest = records.iter().filter_map(|record| record.state.lease_until()).min();
            shared.sweep.finish(pass, from, earliest);
        }
        Ok(Page { records, next: None, now })
    }
}

impl Sweep {
    /// Returns the lease time at which to begin; `None` if everything is due to be examined.
    fn from(&self, now: Timestamp) -> Option<Timestamp> {
        let progress = lock(&self.progress);
        let progress = progress.as_ref()?;
        let is_due = now.since(progress.whole_at) >= WHOLE_EVERY || now < progress.whole_at;
        if is_due { None } else { progress.from }
    }

    /// Records a finished pass. Leases that it found are examined again until they have been changed.
    fn finish(&self, pass: Pass, from: Option<Timestamp>, earliest: Option<Timestamp>) {
        let mut progress = lock(&self.progress);
        let now = pass.at;
        let before = progress.take();
        let whole_at = match (from, &before) {
            (Some(_), Some(before)) => before.whole_at,
            (Some(_) | None, None) | (None, Some(_)) => now,
        };
        // All that this pass could not see was written by transactions that are still there.
        let (reached, waits_for) = match before {
            _ if pass.writers.is_empty() => (Some(late(now)), pass),
            Some(Progress { from, waits_for, .. }) if pass.has_any_of(&waits_for) => {
                (from, waits_for)
            }
            Some(Progress { waits_for, .. }) => (Some(late(waits_for.at.min(now))), pass),
            None => (None, pass),
        };
        let from =
            reached.map(|reached| earliest.map_or(reached, |earliest| earliest.min(reached)));
        *progress = Some(Progress { from, whole_at, waits_for });
    }
}

impl Pass {
    fn has_any_of(&self, earlier: &Self) -> bool {
        earlier.writers.iter().any(|writer| self.writers.contains(writer))
    }
}

/// Every lease that a later transaction counts ends after this.
fn late(at: Timestamp) -> Timestamp {
    at.minus(LATE_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn pass(seconds: i64, writers: &[&str]) -> Pass {
        let writers = writers.iter().map(|&writer| writer.to_owned()).collect();
        Pass { at: at(seconds), writers }
    }

    #[test]
    fn what_was_looked_at_is_left_alone_until_the_hour_is_over() {
        let sweep = Sweep::default();
        assert_eq!(sweep.from(at(1000)), None);
        sweep.finish(pass(1000, &[]), None, None);
        assert_eq!(sweep.from(at(1010)), Some(at(940)));
        sweep.finish(pass(1010, &[]), Some(at(940)), None);
        assert_eq!(sweep.from(at(4599)), Some(at(950)));
        assert_eq!(sweep.from(at(4600)), None);
    }

    #[test]
    fn what_was_found_is_found_again_until_it_is_changed() {
        let sweep = Sweep::default();
        sweep.finish(pass(1000, &[]), None, Some(at(500)));
        assert_eq!(sweep.from(at(1001)), Some(at(500)));
    }

    #[test]
    fn a_clock_that_was_set_back_has_everything_looked_at() {
        let sweep = Sweep::default();
        sweep.finish(pass(1000, &[]), None, None);
        assert_eq!(sweep.from(at(900)), None);
    }

    #[test]
    fn no_pass_moves_on_while_a_writer_is_there_whose_reservation_it_cannot_see() {
        let sweep = Sweep::default();
        sweep.finish(pass(1000, &[]), None, None);
        sweep.finish(pass(1100, &["3/7"]), Some(at(940)), None);
        assert_eq!(sweep.from(at(1200)), Some(at(940)), "the pass before had no writers");
        sweep.finish(pass(1200, &["3/7", "4/1"]), Some(at(940)), None);
        assert_eq!(sweep.from(at(1300)), Some(at(940)));
        sweep.finish(pass(1300, &["4/2"]), Some(at(940)), None);
        assert_eq!(sweep.from(at(1400)), Some(at(1040)), "all that wrote at 1100 have ended");
        sweep.finish(pass(1400, &["4/3"]), Some(at(1040)), None);
        assert_eq!(sweep.from(at(1500)), Some(at(1240)), "all that wrote at 1300 have ended");
        sweep.finish(pass(1500, &[]), Some(at(1240)), None);
        assert_eq!(sweep.from(at(1600)), Some(at(1440)));
    }

    #[test]
    fn a_writer_that_was_there_at_the_first_pass_has_everything_looked_at_again() {
        let sweep = Sweep::default();
        for seconds in [1000, 1100] {
            sweep.finish(pass(seconds, &["3/7"]), None, None);
            assert_eq!(sweep.from(at(seconds + 1)), None);
        }
        sweep.finish(pass(1200, &["4/1"]), None, None);
        assert_eq!(sweep.from(at(1201)), Some(at(940)));
    }
}
