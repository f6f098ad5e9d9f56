//! The store's time as the file keeps it: the latest that it has seen, and the jumps of the host's clock. See
//! [`firstwrite_core::host_clock`] for what follows from it.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_core::host_clock::{Clock, ClockJump, SeenTime, Stopwatch, StoreClock, resume};
use rusqlite::{Connection, OptionalExtension, params};

use super::connect::SqliteOptions;
use crate::clock;

/// The clock of a store that is opened for writing, and the jump that is new with this opening, which the caller
/// writes down.
pub(super) fn resumed(
    connection: &Connection,
    options: &SqliteOptions,
) -> rusqlite::Result<(StoreClock, Option<ClockJump>)> {
    let (wall, stopwatch) = sources(options);
    let resumed = resume(seen(connection)?, wall());
    let mut jumps = jumps(connection)?;
    jumps.extend(resumed.jump);
    Ok((StoreClock::new(wall, stopwatch, resumed.now, jumps), resumed.jump))
}

/// Makes the clock of a store that is only read.
pub(super) fn following(
    connection: &Connection,
    options: &SqliteOptions,
) -> rusqlite::Result<StoreClock> {
    let (wall, stopwatch) = sources(options);
    let shown = wall();
    let now = seen(connection)?.map_or(shown, |seen| seen.followed(shown));
    Ok(StoreClock::new(wall, stopwatch, now, jumps(connection)?))
}

/// Reads the last time recorded in the file; `None` if the file is new.
pub(super) fn seen(connection: &Connection) -> rusqlite::Result<Option<SeenTime>> {
    let sql = "SELECT at, wall FROM firstwrite_time";
    let read = |row: &rusqlite::Row<'_>| {
        let (at, wall) = (row.get(0)?, row.get(1)?);
        Ok(SeenTime { at: Timestamp::from_millis(at), wall: Timestamp::from_millis(wall) })
    };
    connection.query_row(sql, [], read).optional()
}

/// Writes the current time to the file.
pub(super) fn put_seen(connection: &Connection, seen: SeenTime) -> rusqlite::Result<()> {
    let sql = "INSERT INTO firstwrite_time (only, at, wall) VALUES (1, ?1, ?2)
               ON CONFLICT DO UPDATE SET at = ?1, wall = ?2";
    let given = params![seen.at.as_millis(), seen.wall.as_millis()];
    connection.prepare_cached(sql)?.execute(given).map(drop)
}

/// Reads the jumps that no operator has confirmed, oldest first.
pub(super) fn jumps(connection: &Connection) -> rusqlite::Result<Vec<ClockJump>> {
    let sql = "SELECT at, uncounted FROM firstwrite_jumps WHERE confirmed_at IS NULL ORDER BY at";
    connection
        .prepare(sql)?
        .query_map([], |row| {
            let uncounted = u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default();
            let at = Timestamp::from_millis(row.get(0)?);
            Ok(ClockJump::new(at, Duration::from_millis(uncounted)))
        })?
        .collect()
}

/// If only a clock is configured, it also measures elapsed time.
fn sources(options: &SqliteOptions) -> (Clock, Stopwatch) {
    match (&options.clock, &options.stopwatch) {
        (Some(clock), Some(stopwatch)) => (Arc::clone(clock), Arc::clone(stopwatch)),
        (Some(clock), None) => {
            let (clock, start) = (Arc::clone(clock), clock());
            let measuring = Arc::clone(&clock);
            (clock, Arc::new(move || measuring().since(start)))
        }
        (None, Some(stopwatch)) => (clock::wall(), Arc::clone(stopwatch)),
        (None, None) => (clock::wall(), clock::stopwatch()),
    }
}
