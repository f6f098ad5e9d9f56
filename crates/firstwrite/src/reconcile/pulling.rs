//! Reading a source to its end, or to a limit.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_core::reconcile::{Rules, Theirs, Window, distrust_future};
use tokio::time::sleep;

use super::report::Read;
use super::settings::Limits;
use super::{Flaw, Progress, Source, SourceError, SourcePage, StatedExtent};

/// Entries read from a source.
pub(super) struct Pulled {
    pub(super) theirs: Vec<Theirs>,
    pub(super) page_count: usize,
    /// The first reasons why the account is not whole; it is whole if there are none.
    pub(super) flaws: Vec<Flaw>,
}

/// Maximum number of flaws kept; more would tell nothing new.
const FLAWS_MAX: usize = 100;

/// Maximum pause granted to a provider that sends `Retry-After`.
const PAUSE_MAX: Duration = Duration::from_mins(2);

/// Reads every page of `window`.
///
/// A page that cannot be had ends the reading, not the run: what was read of the account is true all the
/// same.
pub(super) async fn pull(
    source: &dyn Source,
    window: Window,
    limits: &Limits,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Pulled {
    let mut pulled = Pulled { theirs: Vec::new(), page_count: 0, flaws: Vec::new() };
    let mut cursors: HashSet<String> = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut ids: HashSet<String> = HashSet::new();
    let (mut item_count, mut extent) = (0, StatedExtent::default());
    loop {
        let place = || format!("page {}", pulled.page_count + 1);
        let SourcePage { entries, flaws, next, passed_over, stated } =
            match page(source, window, cursor.as_deref(), limits).await {
                Ok(page) => page,
                Err(error) => {
                    let flaw = Flaw::new(place(), error.to_string());
                    pulled.flaw(flaw);
                    return pulled;
                }
            };
        let place = place();
        pulled.page_count += 1;
        let new_count =
            entries.iter().filter(|entry| ids.insert(entry.provider_id.clone())).count();
        if new_count == 0 && !entries.is_empty() {
            pulled.flaw(Flaw::new(&*place, "it repeats entries of earlier pages and has no other"));
        }
        (item_count, extent) = (item_count + new_count + passed_over, extent.max(stated));
        pulled.theirs.extend(entries);
        for flaw in flaws {
            pulled.flaw(Flaw::new(format!("{place}, {}", flaw.place), flaw.detail));
        }
        progress(Progress::Pulling(Read {
            pages: pulled.page_count,
            theirs: pulled.theirs.len(),
            ours: 0,
        }));
        let Some(next) = next else {
            if extent.exceeds(item_count, pulled.page_count) {
                pulled.flaw(Flaw::new(place, "the account states more items or pages than it has"));
            }
            return pulled;
        };
        let end = if pulled.page_count >= limits.pages_max {
            Some("there are more pages than are read in a run; choose a shorter window")
        } else if pulled.theirs.len() >= limits.entries_max {
            Some("there are more entries than are read in a run; choose a shorter window")
        } else if !cursors.insert(next.clone()) {
            Some("the page after it has come before: the list goes in circles")
        } else {
            None
        };
        if let Some(end) = end {
            pulled.flaw(Flaw::new(place, end));
            return pulled;
        }
        cursor = Some(next);
    }
}

/// One page, patiently.
async fn page(
    source: &dyn Source,
    window: Window,
    cursor: Option<&str>,
    limits: &Limits,
) -> Result<SourcePage, SourceError> {
    let mut pause = limits.pause_first;
    for _ in 1..limits.tries_max {
        match source.pull(window, cursor).await {
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "a page is asked for again");
                sleep(pause.max(error.asked_pause().unwrap_or_default()).min(PAUSE_MAX)).await;
                pause = pause.saturating_mul(2);
            }
            ended => return ended,
        }
    }
    source.pull(window, cursor).await
}

impl Pulled {
    /// Returns true if an entry is dated so late that the moment of reading matters.
    pub(super) fn reaches_beyond(&self, at: Timestamp) -> bool {
        self.theirs.iter().any(|their| at < their.at)
    }

    /// Notes every entry that is dated in the future as a flaw, and takes its proof away.
    pub(super) fn distrust_future(&mut self, read_at: Timestamp, rules: &Rules) {
        for place in distrust_future(&mut self.theirs, read_at, rules) {
            let place = format!("payment {}", self.theirs[place].provider_id);
            self.flaw(Flaw::new(place, "it is dated later than the moment of reading"));
        }
    }

    pub(super) fn flaw(&mut self, flaw: Flaw) {
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(flaw);
        }
    }
}
