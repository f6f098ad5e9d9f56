//! Queries: reads the items under one partition key in the order of sort keys.

use firstwrite_core::StoreError;

use super::items::{ID, Item, OPEN, SHARD, blob, bytes, text};
use super::link::Link;
use super::table::OPEN_INDEX;
use super::write::Terms;

/// Query for the items of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    pub(super) shard: String,
    /// Exclusive lower bound of the sort key.
    pub(super) after: Option<Vec<u8>>,
    /// Up to this sort key, itself included.
    pub(super) until: Option<Vec<u8>>,
    /// Maximum number of items to examine; a megabyte of them if not set.
    pub(super) limit: Option<usize>,
    /// Reverses the order: the last come first.
    pub(super) is_backwards: bool,
    /// Attributes to return; all of them if none is named.
    pub(super) shown: &'static [&'static str],
    pub(super) source: Source,
}

/// Source of a query's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// The table, as it is at this moment.
    #[default]
    Table,
    /// The table, as it was a moment ago: half the price.
    TableLately,
    /// The index of records that are reserved or uncertain, which may lag by a moment.
    OpenIndex,
}

/// Answer to a partition query.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) items: Vec<Item>,
    /// The last sort key examined, if there may be more.
    pub(super) ended_at: Option<Vec<u8>>,
}

impl Partition {
    pub(super) fn of(shard: impl Into<String>) -> Self {
        Self { shard: shard.into(), ..Self::default() }
    }

    /// Requests one answer: of the items examined, those that pass `filter`.
    pub(super) async fn ask(
        &self,
        link: &Link,
        doing: &'static str,
        filter: impl FnOnce(&mut Terms) -> Option<String>,
    ) -> Result<Answer, StoreError> {
        let mut terms = Terms::default();
        let is_index = self.source == Source::OpenIndex;
        let mut which = terms.is(if is_index { OPEN } else { SHARD }, "=", text(&*self.shard));
        let bounds = match (&self.after, &self.until) {
            (None, None) => None,
            (Some(after), None) => Some(terms.is(ID, ">", bytes(after))),
            (None, Some(until)) => Some(terms.is(ID, "<=", bytes(until))),
            (Some(after), Some(until)) => {
                // Both ends of BETWEEN are included, and nothing is between a key and itself with a zero behind.
                let first = [after.as_slice(), &[0]].concat();
                if first > *until {
                    return Ok(Answer::default());
                }
                let (name, first) = (terms.name(ID), terms.value(bytes(&first)));
                Some(format!("{name} BETWEEN {first} AND {}", terms.value(bytes(until))))
            }
        };
        if let Some(bounds) = bounds {
            which = format!("{which} AND {bounds}");
        }
        let filter = filter(&mut terms);
        let shown: Vec<String> = self.shown.iter().map(|name| terms.name(name)).collect();
        let limit = self.limit.map(|limit| i32::try_from(limit.max(1)).unwrap_or(i32::MAX));
        let query = link
            .client
            .query()
            .table_name(link.table())
            .set_index_name(is_index.then(|| OPEN_INDEX.to_owned()))
            .key_condition_expression(which)
            .set_filter_expression(filter)
            .set_projection_expression((!shown.is_empty()).then(|| shown.join(", ")))
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .scan_index_forward(!self.is_backwards)
            .set_limit(limit)
            .consistent_read(self.source == Source::Table);
        let answer = query.send().await.map_err(|error| link.error(&error).of_read(doing))?;
        let ended_at = answer.last_evaluated_key.as_ref().map(|key| blob(key, ID)).transpose()?;
        let ended_at = ended_at.map(<[u8]>::to_vec);
        Ok(Answer { items: answer.items.unwrap_or_default(), ended_at })
    }
}
