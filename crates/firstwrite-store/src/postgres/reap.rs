//! Deletes completed records past their time, in small steps.
//!
//! There is no index by deadline: it would cost every record space and time for the sake of its last
//! moment, and scans would walk over the dead entries at its front again and again while a transaction
//! holds an old snapshot. A cursor walks the blocks of the tables instead, and remembers for each stretch
//! when its first record is due.

use firstwrite_core::encoding::as_i64;
use firstwrite_core::{StoreError, Timestamp};
use tokio_postgres::Row;

use super::Inner;
use super::columns::{At, Block, Values};
use super::driver_error::{DriverError, corrupt};
use super::link::Link;
use super::rows::{column, instant, only};
use super::sql::Statement;

/// Positions of the walks through the tables, and the time at which each stretch is due.
#[derive(Debug, Default)]
pub(super) struct ReapCursors {
    records: Walk,
    endings: Walk,
}

#[derive(Debug, Default)]
struct Walk {
    next: usize,
    /// For each stretch, the time before which it need not be examined.
    rest_until: Vec<Timestamp>,
}

/// Number of blocks read in one statement: a quarter of a MiB, some hundreds of records, so that most
/// records that are read are deleted at once and not read again.
const STRETCH_BLOCKS: u32 = 32;

/// Stretches read in one call: each is a short transaction of its own.
const STRETCHES_MAX: usize = 64;

/// Time after which a stretch that another transaction has locked is tried again.
const BLOCKED_FOR: std::time::Duration = std::time::Duration::from_secs(1);

/// Deleted in one statement at most, so that no transaction is long.
const REAPED_MAX: usize = 1000;

/// Maximum time after which a stretch is examined again, whatever was in it: new records may have taken the
/// space of old ones.
const REST_MAX: std::time::Duration = std::time::Duration::from_hours(1);

const DOING: &str = "reaping records";

/// Sizes of the tables in blocks, and the server's time.
struct Extent {
    record_blocks: u32,
    ending_blocks: u32,
    oldest_message: At,
    now: Timestamp,
}

impl Inner {
    /// See [`firstwrite_core::Store::reap`].
    pub(super) async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.writes(DOING)?;
        let shared = &self.shared;
        // One walk at a time in this process; other processes have walks of their own.
        let mut reaping = shared.reaping.lock().await;
        let ReapCursors { records, endings } = &mut *reaping;
        let reap = async |link: Link<'_>| {
            let extent = extent(&link).await?;
            let sql = link.sql();
            let mut reaped = 0;
            for (walk, statement, blocks) in [
                (records, &sql.reap_records, extent.record_blocks),
                (endings, &sql.reap_endings, extent.ending_blocks),
            ] {
                reaped += walk.go(&link, statement, (blocks, &extent), limit - reaped).await?;
            }
            Ok(reaped)
        };
        shared.pooled(DOING, reap).await
    }
}

impl Walk {
    /// Reads some stretches from the cursor on; returns how many records were deleted.
    async fn go(
        &mut self,
        link: &Link<'_>,
        statement: &Statement,
        (blocks, extent): (u32, &Extent),
        limit: usize,
    ) -> Result<usize, DriverError> {
        let count = usize::try_from(blocks.div_ceil(STRETCH_BLOCKS)).unwrap_or(usize::MAX);
        self.rest_until.resize(count, Timestamp::EPOCH);
        let (mut reaped, mut read) = (0, 0);
        for _ in 0..count {
            if read >= STRETCHES_MAX || reaped >= limit {
                break;
            }
            let stretch = if self.next < count { self.next } else { 0 };
            self.next = stretch + 1;
            if self.rest_until[stretch] > extent.now {
                continue;
            }
            read += 1;
            let start = u32::try_from(stretch).unwrap_or(u32::MAX).saturating_mul(STRETCH_BLOCKS);
            // The last stretch has no end: records added meanwhile belong to it.
            let is_last = stretch + 1 == count;
            let end = if is_last { u32::MAX } else { start + STRETCH_BLOCKS };
            let due_max = (limit - reaped).min(REAPED_MAX);
            let row_max = as_i64(due_max);
            let values = Values::default()
                .and(Block(start))
                .and(Block(end))
                .and(extent.oldest_message)
                .and(row_max);
            let begin = &link.shared.server.begins().walk;
            let rows = match link.alone(begin, statement, &values.parameters()).await {
                Ok(rows) => rows,
                Err(error) if error.may_be_rival() => {
                    self.rest_until[stretch] = extent.now.plus(BLOCKED_FOR);
                    continue;
                }
                Err(error) => return Err(error),
            };
            firstwrite_core::crash_point!("postgres-reap-between");
            let result = StretchResult::read(only(&rows, "a reap answers with one row")?)?;
            reaped += result.reaped;
            if result.due >= due_max {
                // There may be more: this stretch is examined again first.
                self.next = stretch;
            } else if !is_last {
                let rest_max = extent.now.plus(REST_MAX);
                self.rest_until[stretch] =
                    result.due_at.map_or(rest_max, |due_at| due_at.min(rest_max));
            }
        }
        Ok(reaped)
    }
}

/// Result of reaping one stretch.
struct StretchResult {
    reaped: usize,
    due: usize,
    /// Time at which the first of the remaining records is due.
    due_at: Option<Timestamp>,
}

impl StretchResult {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let count = |index| {
            usize::try_from(column::<i64>(row, index)?)
                .map_err(|_range| corrupt("a number below zero"))
        };
        let due_at = column::<Option<At>>(row, 2)?.and_then(At::instant);
        Ok(Self { reaped: count(0)?, due: count(1)?, due_at })
    }
}

async fn extent(link: &Link<'_>) -> Result<Extent, DriverError> {
    let begin = &link.shared.server.begins().walk;
    let rows = link.alone(begin, &link.sql().extent, &[]).await?;
    let row = only(&rows, "the tables' extent is one row")?;
    let blocks = |index| -> Result<u32, StoreError> {
        Ok(u32::try_from(column::<i64>(row, index)?).unwrap_or(u32::MAX))
    };
    Ok(Extent {
        record_blocks: blocks(0)?,
        ending_blocks: blocks(1)?,
        oldest_message: column(row, 2)?,
        now: instant(row, 3)?,
    })
}
