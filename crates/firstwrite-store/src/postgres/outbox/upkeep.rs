//! Periodic upkeep: folds counts, releases forgotten successors, and deletes messages that were delivered long ago.
//!
//! Each is a walk in small steps that remembers its position, so that rows which were deleted and are not vacuumed
//! yet are passed once.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::StoreError;
use firstwrite_core::encoding::as_i64;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;

use super::parts::short_millis;
use crate::postgres::Shared;
use crate::postgres::driver_error::corrupt;
use crate::postgres::rows::column;

/// Positions that the walks have reached.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Messages up to this number were looked at.
    deleted_to: Option<Deleted>,
    /// Orders up to this one were looked at.
    repaired_to: (i32, String),
}

#[derive(Clone, Copy, Debug)]
struct Deleted {
    number: i64,
    begun_at: Instant,
}

const DOING: &str = "keeping the outbox in order";

/// Maximum number of rows that one statement looks at.
const STEP: i64 = 1000;

/// Maximum number of statements in one call.
const STEPS_MAX: usize = 64;

/// After this long, messages are looked at from the beginning: what waited then may have arrived since.
const WHOLE_EVERY: Duration = Duration::from_mins(10);

impl Upkeep {
    /// See [`firstwrite_core::outbox::Outbox::upkeep`].
    pub(super) async fn go(
        &mut self,
        shared: &Arc<Shared>,
        kept_for: Duration,
        limit: usize,
    ) -> Result<usize, StoreError> {
        shared.write_alone(DOING, &shared.sql.outbox.fold, &[]).await?;
        self.repair(shared).await?;
        shared.write_alone(DOING, &shared.sql.outbox.forget, &[&STEP]).await?;
        self.delete(shared, kept_for, limit).await
    }

    /// Lets go what waits for a predecessor that is gone. There should be none.
    async fn repair(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let (destination, ordering_key) = &self.repaired_to;
        let given: [&(dyn ToSql + Sync); 3] = [destination, ordering_key, &STEP];
        let rows = shared.write_alone(DOING, &shared.sql.outbox.repair, &given).await?;
        let Some(row) = rows.first() else {
            self.repaired_to = Default::default();
            return Ok(());
        };
        let (let_go, looked_at): (i64, i64) = (column(row, 0)?, column(row, 1)?);
        if let_go > 0 {
            tracing::warn!(let_go, "messages waited for predecessors that are gone");
        }
        // An order may be longer than a step: only its beginning matters.
        self.repaired_to =
            if looked_at < STEP { Default::default() } else { (column(row, 2)?, column(row, 3)?) };
        Ok(())
    }

    async fn delete(
        &mut self,
        shared: &Arc<Shared>,
        kept_for: Duration,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let kept_for = short_millis(kept_for);
        let mut deleted = 0;
        for _ in 0..STEPS_MAX {
            let left = as_i64(limit - deleted).min(STEP);
            if left == 0 {
                break;
            }
            let from = self.deleted_to.filter(|last| last.begun_at.elapsed() < WHOLE_EVERY);
            let number = from.map_or(-1, |last| last.number);
            let begun_at = from.map_or_else(Instant::now, |last| last.begun_at);
            let given: [&(dyn ToSql + Sync); 3] = [&number, &left, &kept_for];
            let rows = shared.write_alone(DOING, &shared.sql.outbox.delete, &given).await?;
            let row = rows.first().ok_or_else(|| corrupt("nothing is said of what was deleted"))?;
            deleted += usize::try_from(column::<i64>(row, 0)?).unwrap_or(0);
            let (last, is_young): (Option<i64>, bool) = (column(row, 1)?, column(row, 2)?);
            let Some(last) = last.filter(|_| !is_young) else {
                // Behind this, all is younger; what is here is looked at again.
                break;
            };
            self.deleted_to = Some(Deleted { number: last, begun_at });
        }
        Ok(deleted)
    }
}
