//! `firstwrite keys migrate`: copies the records of one store into another, beside running services.
//!
//! 1. It copies records page by page in the order of their ids, and leaves alone those that exist in the new store
//!    already, so an interrupted copy can be restarted.
//! 2. It cannot copy records whose attempt is still under way: it waits for them and reads them again.
//! 3. It scans the old store once more for records that were written meanwhile: there should be none.
//! 4. It only reads the old store. Its records answer as long as services look into it.

mod copy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Page, Query, RecordId, Store, StoreErrorKind, Timestamp};
use firstwrite_store::Access;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::command::{Exit, MoveFlags};
use crate::config::{StoreUrl, UsageError};
use crate::opening;
use crate::output::{self, Format, Progress};
use crate::signals::Signals;
use copy::Copied;

/// Source and target of a migration, and its options.
#[derive(Debug)]
pub(crate) struct Move {
    from: StoreUrl,
    to: StoreUrl,
    after: Option<RecordId>,
    wait: Duration,
}

/// Result of a migration, and the document of `--format json`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Written into the new store.
    copied: usize,
    /// Stood there already.
    there: usize,
    /// Past their time: nothing is left to remember.
    spent: usize,
    /// Still under way, or in the way of one another, when the waiting ended.
    left: usize,
    /// Another record stands in the new store, and both answer.
    differing: usize,
    /// Written into the old store since this began.
    new_in_old: usize,
    /// Broken off by a signal.
    stopped: bool,
    /// Value from which to continue after an interruption; `None` means from the start.
    next: Option<String>,
}

/// So many are written at the same time: stores write those that wait together in one go.
const AT_ONCE: usize = 256;
/// So many that are under way are remembered. More are found by running the command again.
const LEFT_MAX: usize = 10_000;
/// Interval at which records under way are checked again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Move {
    pub(super) fn resolve(flags: &MoveFlags) -> Result<Self, UsageError> {
        let parse = |flag: &str, text: &str| {
            text.parse::<StoreUrl>().map_err(|what| UsageError::new(format!("{flag}: {what}")))
        };
        let (from, to) = (parse("--from", &flags.from)?, parse("--to", &flags.to)?);
        if from == to {
            return Err(UsageError::new("--from and --to name the same store; name two"));
        }
        Ok(Self { from, to, after: flags.after, wait: flags.wait })
    }

    pub(super) fn run(&self, format: Format) -> anyhow::Result<Exit> {
        opening::service_runtime()?.block_on(async {
            let mut signals = Signals::listen()?;
            let from = opening::open(&self.from, Access::ReadOnly).await?;
            let to = opening::open(&self.to, Access::Write).await?;
            warn_of_weaker(&*from, &*to);
            let mut walk = Walk::begin(from, to, self.after).await?;
            let ended = tokio::select! {
                ended = walk.all(self.wait) => Some(ended),
                () = signals.received() => None,
            };
            let next = walk.next().map(|id| id.to_string());
            walk.progress.end();
            match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    return Err(match next {
                        Some(id) => error.context(format!("broken off; go on with --after {id}")),
                        None => error,
                    });
                }
                None => (walk.summary.stopped, walk.summary.next) = (true, next),
            }
            walk.summary.left = walk.left.len() + walk.left_uncounted;
            report(&walk.summary, format)
        })
    }
}

/// A walk over the old store.
struct Walk {
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    began_at: Timestamp,
    /// Up to here everything was looked at, and written if it could be.
    after: Option<RecordId>,
    left: BTreeSet<RecordId>,
    left_uncounted: usize,
    /// The first of those that are not remembered.
    uncounted_from: Option<RecordId>,
    summary: Summary,
    progress: Progress,
}

impl Walk {
    async fn begin(
        from: Arc<dyn Store>,
        to: Arc<dyn Store>,
        after: Option<RecordId>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            began_at: from.now().await?,
            from,
            to,
            after,
            left: BTreeSet::new(),
            left_uncounted: 0,
            uncounted_from: None,
            summary: Summary::default(),
            progress: Progress::new("keys", 0),
        })
    }

    async fn all(&mut self, wait: Duration) -> anyhow::Result<()> {
        self.check_history().await?;
        self.copy_pages().await?;
        self.wait_for_left(wait).await?;
        self.look_for_new().await?;
        // Once more: what was lost while the records were copied is in neither store.
        self.check_history().await
    }

    /// Refuses to move from a store that lost history: the new store would not know what is missing, and keys
    /// that were used would run again there.
    async fn check_history(&self) -> anyhow::Result<()> {
        let any = RecordId::from_bytes([0; 16]);
        let Err(error) = self.from.check_history(any).await else { return Ok(()) };
        if error.kind() != StoreErrorKind::HistoryLost {
            return Err(error.into());
        }
        Err(anyhow::Error::new(error).context(
            "the old store has lost history, and keys that it lost would run again in the new one; look into \
             it, clear it with `firstwrite doctor --clear-history-loss`, and run this again",
        ))
    }

    async fn copy_pages(&mut self) -> anyhow::Result<()> {
        let (began_after, mut walked) = (self.after, 0);
        let mut page = self.page(self.after).await?;
        loop {
            // The next page is read while this one is written.
            let next = page.next;
            let reading = async {
                match next {
                    Some(_) => self.page(next).await.map(Some),
                    None => Ok(None),
                }
            };
            let count = page.records.len();
            let last = page.records.last().map(|record| record.id);
            // What is newer is looked for at the end.
            page.records.retain(|record| record.created_at <= self.began_at);
            let writing = copy_all(&self.from, &self.to, page.records, page.now);
            let (following, copied) = tokio::join!(reading, writing);
            self.count(copied?);
            self.after = last.or(self.after);
            walked += count;
            self.progress.expect(expected(walked, began_after, self.after));
            self.progress.show(walked);
            match following? {
                Some(following) => page = following,
                None => return Ok(()),
            }
        }
    }

    /// After which record a run goes on that is broken off now: before the first that is left.
    fn next(&self) -> Option<RecordId> {
        match self.left.first().copied().into_iter().chain(self.uncounted_from).min() {
            None => self.after,
            Some(left) => before(left),
        }
    }

    async fn page(&self, after: Option<RecordId>) -> anyhow::Result<Page> {
        let query = Query { tenant: None, state: None, after, limit: Query::LIMIT_MAX };
        Ok(self.from.list(&query).await?)
    }

    /// Looks at those that were under way until none is, or the time is over.
    async fn wait_for_left(&mut self, wait: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + wait;
        while !self.left.is_empty() {
            for id in self.left.clone() {
                // Left until it is looked at: a signal may come at any time.
                let found = self.from.get(id).await?;
                let copied = match found {
                    Some(found) => {
                        copy_all(&self.from, &self.to, vec![found.record], found.now).await?
                    }
                    None => Vec::new(),
                };
                self.left.remove(&id);
                self.count(copied);
            }
            if self.left.is_empty() || Instant::now() >= until {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Copies what was written since this began, wherever in the order of ids.
    async fn look_for_new(&mut self) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let mut page = self.page(after).await?;
            page.records.retain(|record| record.created_at > self.began_at);
            self.summary.new_in_old += page.records.len();
            let copied = copy_all(&self.from, &self.to, page.records, page.now).await?;
            self.count(copied);
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn count(&mut self, copied: Vec<(RecordId, Copied)>) {
        for (id, copied) in copied {
            match copied {
                Copied::Written => self.summary.copied += 1,
                Copied::There => self.summary.there += 1,
                Copied::Spent => self.summary.spent += 1,
                Copied::Differs => self.summary.differing += 1,
                Copied::UnderWay if self.left.len() < LEFT_MAX => drop(self.left.insert(id)),
                Copied::UnderWay => {
                    self.left_uncounted += 1;
                    self.uncounted_from = self.uncounted_from.into_iter().chain([id]).min();
                }
            }
        }
    }
}

/// Copies these, many at a time.
async fn copy_all(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    records: Vec<firstwrite_core::Record>,
    now: Timestamp,
) -> anyhow::Result<Vec<(RecordId, Copied)>> {
    let mut copied = Vec::with_capacity(records.len());
    let mut under_way = JoinSet::new();
    for record in records {
        if under_way.len() >= AT_ONCE
            && let Some(ended) = under_way.join_next().await
        {
            copied.push(ended??);
        }
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        under_way.spawn(async move {
            let id = record.id;
            let copied = copy::copy(&*from, &*to, record, now).await?;
            Ok::<_, firstwrite_core::StoreError>((id, copied))
        });
    }
    while let Some(ended) = under_way.join_next().await {
        copied.push(ended??);
    }
    Ok(copied)
}

/// The id that comes before; none before the first.
fn before(id: RecordId) -> Option<RecordId> {
    let number = u128::from_be_bytes(*id.as_bytes()).checked_sub(1)?;
    Some(RecordId::from_bytes(number.to_be_bytes()))
}

/// Estimates the number of records from the start of the walk to the end, from the number walked so far: ids
/// are digests, and evenly distributed.
fn expected(walked: usize, began: Option<RecordId>, here: Option<RecordId>) -> usize {
    const ALL: u64 = 1 << 32;
    let place = |id: Option<RecordId>| {
        id.map_or(0, |id| {
            let [a, b, c, d, ..] = *id.as_bytes();
            u64::from(u32::from_be_bytes([a, b, c, d]))
        })
    };
    let (began, here) = (place(began), place(here));
    let walked = walked as u64;
    let all = walked.saturating_mul(ALL - began).checked_div(here.saturating_sub(began));
    all.and_then(|all| usize::try_from(all).ok()).unwrap_or(0)
}

fn warn_of_weaker(from: &dyn Store, to: &dyn Store) {
    let (from, to) = (from.capabilities(), to.capabilities());
    for (has, keeps, what) in [
        (from.durable, to.durable, "what it acknowledged survives its end"),
        (from.server_time, to.server_time, "all its users share one clock"),
        (from.transactions, to.transactions, "a handler's rows and the record share one commit"),
    ] {
        if has && !keeps {
            output::note(&format!("note: the new store promises less: not that {what}"));
        }
    }
}

fn report(summary: &Summary, format: Format) -> anyhow::Result<Exit> {
    match format {
        Format::Json => output::document(summary)?,
        Format::Table => output::data(&format!(
            "copied: {}\nthere already: {}\npast their retention: {}\nleft: {}\n",
            summary.copied, summary.there, summary.spent, summary.left
        ))?,
    }
    if summary.stopped {
        output::note(&match &summary.next {
            Some(next) => format!("stopped; go on with --after {next}"),
            None => "stopped; begin again".to_owned(),
        });
    } else if summary.differing > 0 {
        let text =
            "{} keys stand in both stores with different answers; look at both with `keys show`";
        output::note(&text.replace("{}", &summary.differing.to_string()));
    } else if summary.left > 0 {
        let text =
            "{} keys are still under way in the old store; run this again when they have ended";
        output::note(&text.replace("{}", &summary.left.to_string()));
    } else if summary.new_in_old > 0 {
        let text = "{} keys were written into the old store meanwhile: a process still has it as --store; \
                    change that, and run this again";
        output::note(&text.replace("{}", &summary.new_in_old.to_string()));
    } else {
        return Ok(Exit::Done);
    }
    Ok(Exit::Failed)
}

#[cfg(test)]
mod tests {
    use firstwrite_core::{Fence, MemoryStore, OnLostAnswer};
    use firstwrite_testkit::{ManualClock, sample};

    use super::*;

    fn id(first: u8) -> RecordId {
        let mut bytes = [0; 16];
        bytes[0] = first;
        RecordId::from_bytes(bytes)
    }

    async fn walk(clock: &ManualClock) -> Walk {
        let from: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        let to: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        let policy = sample::policy(OnLostAnswer::Uncertain);
        for number in 0..10 {
            let key = sample::key(&format!("key-{number}"));
            let request = sample::request(&sample::tenant("acme"), &key, 1);
            let outcome = sample::outcome(201, "done");
            let draft = sample::completed(&request, &policy, Fence::first(1), outcome);
            from.insert(&draft).await.unwrap();
        }
        Walk::begin(from, to, None).await.unwrap()
    }

    #[tokio::test]
    async fn a_run_that_is_broken_off_goes_on_after_what_was_copied_and_before_what_was_left() {
        let mut walk = walk(&ManualClock::new()).await;
        assert_eq!(walk.next(), None, "nothing was copied yet");
        walk.copy_pages().await.unwrap();
        let page = walk.page(None).await.unwrap();
        let last = page.records.last().map(|record| record.id);
        assert_eq!((walk.summary.copied, walk.next()), (10, last));
        walk.count(vec![(id(9), Copied::UnderWay), (id(7), Copied::UnderWay)]);
        let next = walk.next().unwrap();
        assert!(next < id(7) && before(id(7)) == Some(next));
        // Beyond what is remembered, the first one counts too.
        walk.left = (0..LEFT_MAX).map(|number| RecordId::from_bytes(wide(number))).collect();
        walk.count(vec![(id(5), Copied::UnderWay)]);
        assert_eq!((walk.left_uncounted, walk.next()), (1, before(id(5))));
        assert_eq!(before(id(0)), None);
    }

    fn wide(number: usize) -> [u8; 16] {
        let mut bytes = [9; 16];
        bytes[8..].copy_from_slice(&(number as u64).to_be_bytes());
        bytes
    }

    #[test]
    fn how_many_there_are_is_judged_by_how_many_there_were() {
        assert_eq!(expected(100, None, Some(id(128))), 200);
        assert_eq!(expected(100, Some(id(128)), Some(id(192))), 200);
        assert_eq!(expected(0, None, None), 0);
    }
}
