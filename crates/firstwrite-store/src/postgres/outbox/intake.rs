//! Tracks which messages were taken in, and which may still become visible.
//!
//! A message gets its number before its transaction commits. So a missing number may belong to a transaction that is
//! still running, or to one that was rolled back. A transaction that was given a number holds the lock of the table
//! it writes to from before that until its end, so it has ended once it is no longer among the holders of that lock.
//! A number that is still missing in a snapshot taken after that never appears.
//!
//! Only one process at a time takes messages in, under a lock that it tries to get. So a message is either not taken
//! in, and no other process can do so now; or it is visible as pending, or as delivered since.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::StoreError;
use tokio::time::Instant;
use tokio_postgres::Row;

use super::numbers::{Numbers, Ranges};
use crate::postgres::Shared;
use crate::postgres::driver_error::{DriverError, corrupt};
use crate::postgres::link::Link;
use crate::postgres::rows::column;

/// Message numbers known to this process, if any.
#[derive(Debug, Default)]
pub(super) struct Intake {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    numbers: Numbers,
    /// Start of the server and row of `history` under which the numbers were learnt: under others, numbers may begin
    /// elsewhere.
    tables: (i64, i64),
    looked_at: Instant,
    /// Time at which all gaps were last looked at and the possible writers were last asked for.
    asked_at: Option<Instant>,
    noted_at: Instant,
    doubtful: Option<Doubtful>,
}

/// Numbers below `end`, which were given out before the holders of the table's lock were asked for.
#[derive(Debug)]
struct Doubtful {
    end: i64,
    /// Holders of the lock at that time that are not known to have ended.
    holders: Vec<String>,
    /// True if all holders are prepared transactions, which keep their names until they end. Others change theirs
    /// when they are prepared.
    are_prepared: bool,
}

/// Number ranges to look at in one claim.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) ranges: Ranges,
    /// True if the claim also asks who holds the table's lock.
    pub(super) asks: bool,
    /// Ranges to store, if it is time to.
    pub(super) notes: Option<Ranges>,
}

/// Numbers and lock holders that a claim saw.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) holders: Option<Vec<String>>,
    pub(super) seen: Vec<i64>,
    /// True if the ranges held nothing more.
    pub(super) is_whole: bool,
}

/// Time after which other processes may have taken in newer messages, so that the stored ranges are worth reading
/// again.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// Interval at which old gaps are looked at. Asking who may fill them reads the server's lock table.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Interval at which the ranges are stored. Rarely, since each update leaves a dead row behind; ranges that were not
/// stored are only looked at again.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Prefix of the server's names for prepared transactions, which have no process.
const PREPARED: &str = "-1/";

impl Intake {
    /// Reads what was written down, where this process has not looked for a while.
    pub(super) async fn learn(&mut self, link: &Link<'_>) -> Result<(), DriverError> {
        let asked = link.shared.history.check();
        let tables = (asked.incarnation, asked.writer);
        let known = self.known.take_if(|known| known.tables != tables);
        drop(known);
        let is_stale = |known: &Known| known.looked_at.elapsed() >= STALE_AFTER;
        if !self.known.as_ref().is_none_or(is_stale) {
            return Ok(());
        }
        let rows = link.alone(&link.shared.server.begins().look, &link.sql().outbox.intake, &[]);
        let numbers = read(rows.await?.first())?;
        let now = Instant::now();
        match &mut self.known {
            Some(known) if known.numbers.tail() >= numbers.tail() => known.looked_at = now,
            known => {
                *known = Some(Known {
                    numbers,
                    tables,
                    looked_at: now,
                    asked_at: None,
                    noted_at: now,
                    doubtful: None,
                });
            }
        }
        Ok(())
    }

    /// Returns the ranges to look at now; none before [`learn`](Self::learn).
    pub(super) fn turn(&self) -> Turn {
        let Some(known) = &self.known else {
            let ranges = Ranges { starts: Vec::new(), stops: Vec::new(), is_all: false };
            return Turn { ranges, asks: false, notes: None };
        };
        let is_due = known.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        Turn {
            ranges: known.numbers.ranges(is_due),
            asks: is_due && known.numbers.has_gaps(),
            notes: (known.noted_at.elapsed() >= NOTE_EVERY).then(|| known.numbers.kept()),
        }
    }

    /// Records what a committed claim saw.
    pub(super) fn looked(&mut self, turn: &Turn, sight: Sight) {
        let Some(known) = &mut self.known else { return };
        known.looked_at = Instant::now();
        if turn.notes.is_some() {
            known.noted_at = known.looked_at;
        }
        let tail = known.numbers.tail();
        known.numbers.remove(&sight.seen);
        if turn.ranges.is_all {
            known.asked_at = Some(known.looked_at);
        }
        let Some(holders) = sight.holders else { return };
        let doubtful = match known.doubtful.take() {
            Some(mut doubtful) => {
                doubtful.holders.retain(|holder| holders.contains(holder));
                doubtful
            }
            None => Doubtful::new(tail, &holders),
        };
        let doubtful = doubtful.or_prepared(&holders);
        if !doubtful.holders.is_empty() {
            known.doubtful = Some(doubtful);
        } else if turn.ranges.is_all && sight.is_whole {
            known.numbers.give_up_below(doubtful.end);
        }
    }

    /// Discards all that is known.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}

impl Doubtful {
    fn new(end: i64, holders: &[String]) -> Self {
        let running = holders.iter().filter(|holder| !holder.starts_with(PREPARED));
        Self { end, holders: running.cloned().collect(), are_prepared: false }
    }

    /// Once all holders have ended or were prepared, keeps only the prepared ones.
    fn or_prepared(self, holders: &[String]) -> Self {
        if !self.holders.is_empty() || self.are_prepared {
            return self;
        }
        let prepared = holders.iter().filter(|holder| holder.starts_with(PREPARED));
        Self { end: self.end, holders: prepared.cloned().collect(), are_prepared: true }
    }
}

/// Writes down destinations that no message had gone to before.
pub(super) async fn add_destinations(
    shared: &Shared,
    client: &ClientWrapper,
    names: &[String],
) -> Result<(), DriverError> {
    let link = Link { client, shared };
    let begin = &shared.server.begins().outbox;
    link.alone(begin, &link.sql().outbox.add_destinations, &[&names]).await.map(drop)
}

fn read(row: Option<&Row>) -> Result<Numbers, StoreError> {
    let missing = || corrupt("what was taken in is not written down");
    let row = row.ok_or_else(missing)?;
    let (starts, stops): (Vec<i64>, Vec<i64>) = (column(row, 0)?, column(row, 1)?);
    Numbers::new(&starts, &stops).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake() -> Intake {
        let now = Instant::now();
        let numbers = Numbers::new(&[0], &[i64::MAX]).unwrap();
        let (asked_at, doubtful) = (None, None);
        let (looked_at, noted_at) = (now, now);
        let known = Known { numbers, tables: (1, 1), looked_at, asked_at, noted_at, doubtful };
        Intake { known: Some(known) }
    }

    fn look(intake: &mut Intake, seen: &[i64], holders: &[&str]) {
        let ranges = intake.known.as_ref().unwrap().numbers.ranges(true);
        let turn = Turn { ranges, asks: true, notes: None };
        let holders = Some(holders.iter().map(|&holder| holder.to_owned()).collect());
        intake.looked(&turn, Sight { holders, seen: seen.to_vec(), is_whole: true });
    }

    fn has_gaps(intake: &Intake) -> bool {
        intake.known.as_ref().unwrap().numbers.has_gaps()
    }

    #[test]
    fn a_gap_is_given_up_when_everybody_who_might_fill_it_has_ended() {
        let mut intake = intake();
        look(&mut intake, &[0, 1, 4], &["3/7", "4/9"]);
        assert!(has_gaps(&intake), "asked before the gap was known");
        // What was asked then says nothing about numbers that came later.
        look(&mut intake, &[], &["3/7", "5/1"]);
        look(&mut intake, &[], &["5/1"]);
        assert!(has_gaps(&intake));
        look(&mut intake, &[], &["5/1"]);
        assert!(has_gaps(&intake), "5/1 may have one of the numbers");
        look(&mut intake, &[], &["6/1"]);
        assert!(!has_gaps(&intake));
    }

    #[test]
    fn with_nobody_at_work_a_gap_is_given_up_at_once() {
        let mut intake = intake();
        look(&mut intake, &[0, 2], &[]);
        assert!(has_gaps(&intake));
        look(&mut intake, &[], &[]);
        assert!(!has_gaps(&intake));
    }

    #[test]
    fn a_transaction_that_is_prepared_meanwhile_is_waited_for_under_its_new_name() {
        let mut intake = intake();
        look(&mut intake, &[0, 2], &[]);
        look(&mut intake, &[], &["3/7"]);
        look(&mut intake, &[], &["-1/7"]);
        assert!(has_gaps(&intake), "3/7 may be -1/7 now");
        look(&mut intake, &[], &["-1/7", "-1/8"]);
        assert!(has_gaps(&intake));
        look(&mut intake, &[], &["-1/8"]);
        assert!(!has_gaps(&intake));
    }

    #[test]
    fn a_gap_that_was_not_looked_at_is_not_given_up() {
        for (is_all, is_whole) in [(true, false), (false, true)] {
            let mut intake = intake();
            look(&mut intake, &[0, 2], &[]);
            let ranges = intake.known.as_ref().unwrap().numbers.ranges(true);
            let turn = Turn { ranges: Ranges { is_all, ..ranges }, asks: true, notes: None };
            let (holders, seen) = (Some(Vec::new()), Vec::new());
            intake.looked(&turn, Sight { holders, seen, is_whole });
            assert!(has_gaps(&intake));
        }
    }

    #[test]
    fn a_gap_that_is_filled_late_is_seen() {
        let mut intake = intake();
        look(&mut intake, &[0, 2, 3], &["3/7"]);
        look(&mut intake, &[1], &["3/7"]);
        assert!(!has_gaps(&intake));
    }
}
