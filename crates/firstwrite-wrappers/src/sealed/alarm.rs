//! The alarm of outcomes that do not open: a line in the log, and counts.

use std::sync::atomic::{AtomicU64, Ordering};

use firstwrite_core::RecordId;

use super::envelope::OpenFailure;
use crate::seldom::Seldom;

/// Counts of outcomes that could not be opened since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnopenedCounts {
    /// It was altered, or belongs to another record or attempt, or is in no format that this build seals.
    pub altered: u64,
    /// The key ring does not have its key.
    pub no_key: u64,
    /// It is not sealed, and the ring reads nothing that is not.
    pub not_sealed: u64,
}

/// One line and one count for each reason: frequent failures of one do not hide another.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    altered: Reason,
    no_key: Reason,
    not_sealed: Reason,
}

#[derive(Debug, Default)]
struct Reason {
    line: Seldom,
    count: AtomicU64,
}

impl Alarm {
    pub(super) fn raise(&self, record_id: RecordId, why: OpenFailure) {
        let reason = match why {
            OpenFailure::Altered | OpenFailure::Malformed => &self.altered,
            OpenFailure::NoKey => &self.no_key,
            OpenFailure::Plain => &self.not_sealed,
            // The operator wants it so.
            OpenFailure::Dropped => {
                tracing::debug!(%record_id, %why, "an outcome is not opened");
                return;
            }
        };
        reason.count.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = reason.line.now() {
            tracing::error!(%record_id, %why, left_out, "an outcome cannot be opened");
        } else {
            tracing::debug!(%record_id, %why, "an outcome cannot be opened");
        }
    }

    pub(super) fn counts(&self) -> UnopenedCounts {
        let of = |reason: &Reason| reason.count.load(Ordering::Relaxed);
        let Self { altered, no_key, not_sealed } = self;
        UnopenedCounts { altered: of(altered), no_key: of(no_key), not_sealed: of(not_sealed) }
    }
}
