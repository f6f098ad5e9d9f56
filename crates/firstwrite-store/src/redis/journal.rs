//! Index updates of a shard that have not been applied yet; see `journal.lua`.

use std::collections::BTreeMap;

use firstwrite_core::{RecordId, StoreError, Timestamp};
use redis::Value;

use super::driver_error::corrupt;
use super::link::bytes;
use super::record::instant;

/// The last that was noted of each record.
pub(super) struct Journal(BTreeMap<RecordId, Noted>);

struct Noted {
    /// `r`eserved, `c`ompleted, `u`ncertain, or `x`: deleted.
    state: u8,
    due: Timestamp,
}

impl Journal {
    pub(super) fn read(value: &Value) -> Result<Self, StoreError> {
        let wrong = || corrupt("a shard's journal cannot be read");
        let Value::Array(entries) = value else { return Err(wrong()) };
        let mut last = BTreeMap::new();
        for entry in entries {
            let entry = bytes(entry).ok_or_else(wrong)?;
            let (id, rest) = entry.split_first_chunk::<16>().ok_or_else(wrong)?;
            let (state, due) = rest.split_first().ok_or_else(wrong)?;
            let due = instant(due.try_into().map_err(|_length| wrong())?)?;
            last.insert(
                RecordId::from_bytes(*id),
                Noted { state: state.to_ascii_lowercase(), due },
            );
        }
        Ok(Self(last))
    }

    /// Adds the missing ids to `ids`, the first `limit` of an index after `after`.
    pub(super) fn list(
        &self,
        ids: Vec<RecordId>,
        after: Option<RecordId>,
        limit: usize,
    ) -> Vec<RecordId> {
        let is_asked_for = |id: &RecordId| after.is_none_or(|after| *id > after);
        let mut all: Vec<RecordId> = self.0.keys().copied().filter(is_asked_for).collect();
        all.extend(ids);
        all.sort_unstable();
        all.dedup();
        // Beyond as many as the index gave there may be others of its.
        all.truncate(limit);
        all
    }

    /// Corrects the records in `state` that are due at `now`; `ids` are those of the index.
    pub(super) fn due(&self, ids: Vec<RecordId>, state: u8, now: Timestamp) -> Vec<RecordId> {
        let mut all: Vec<RecordId> =
            ids.into_iter().filter(|id| !self.0.contains_key(id)).collect();
        let is_due = |noted: &Noted| noted.state == state && noted.due <= now;
        let mut noted: Vec<_> = self.0.iter().filter(|(_, noted)| is_due(noted)).collect();
        noted.sort_by_key(|(_, noted)| noted.due);
        all.extend(noted.into_iter().map(|(id, _)| *id));
        all
    }
}
