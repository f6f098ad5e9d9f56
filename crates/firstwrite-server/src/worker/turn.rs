//! Prints the results of `firstwrite worker --once`, for people and machines.

use firstwrite::worker::{DeliveredCounts, Turn};
use serde::Serialize;

use crate::output::{self, Format, Table};

/// The document of `--once --format json`.
#[derive(Debug, Serialize)]
struct TurnView {
    swept: SweptView,
    reaped: usize,
    /// Messages that were deleted, having been delivered long ago.
    deleted: usize,
    delivered: DeliveredView,
}

#[derive(Debug, Serialize)]
struct SweptView {
    freed: usize,
    uncertain: usize,
    moved: usize,
}

/// Numbers of deliveries, by result.
#[derive(Debug, Serialize)]
struct DeliveredView {
    delivered: usize,
    waiting: usize,
    unknown: usize,
    refused: usize,
    dead: usize,
    lost: usize,
}

pub(super) fn say(turn: &Turn, counts: DeliveredCounts, format: Format) -> anyhow::Result<()> {
    let Turn { swept, reaped, deleted, .. } = *turn;
    let DeliveredCounts { delivered, waiting, unknown, refused, dead, lost, .. } = counts;
    match format {
        Format::Json => {
            let (freed, uncertain, moved) = (swept.freed, swept.uncertain, swept.moved);
            output::document(&TurnView {
                swept: SweptView { freed, uncertain, moved },
                reaped,
                deleted,
                delivered: DeliveredView { delivered, waiting, unknown, refused, dead, lost },
            })
        }
        Format::Table => {
            let mut table = Table::new(["LOOP", "WHAT", "COUNT"]);
            for (name, what, count) in [
                ("sweep", "freed: the key may run again", swept.freed),
                ("sweep", "uncertain: waiting for proof", swept.uncertain),
                ("sweep", "moved on by themselves", swept.moved),
                ("reap", "deleted past their retention", reaped),
                ("upkeep", "messages deleted, delivered long ago", deleted),
                ("deliver", "delivered", delivered),
                ("deliver", "waiting for the next try", waiting),
                ("deliver", "unknown: waiting for proof", unknown),
                ("deliver", "refused: the client is told", refused),
                ("deliver", "dead letters", dead),
                ("deliver", "taken over by another worker", lost),
            ] {
                table.row([name.to_owned(), what.to_owned(), count.to_string()]);
            }
            output::data(&table.to_string())
        }
    }
}
