//! Reconciliation: compares our books with a provider's account, to settle what is in doubt here and the
//! provider knows, and to report where the two disagree.
//!
//! A [`Source`] gives account of a [`Window`] of time. [`reconcile_once`] reads it, reads what was asked for
//! here, and compares the two as [`firstwrite_core::reconcile`] defines. Then
//!
//! 1. a message that may or may not have arrived is *delivered* if the provider has it, and sent again under
//!    its key if it is proven not to have it;
//! 2. an uncertain request is *completed* with the answer of [`RecordScope`] if the provider has it, so that
//!    the client's retry is a replay, and its key is *free* if it is proven not to have it;
//! 3. whatever contradicts our books is a *finding* for a person, and settles nothing.
//!
//! What is proven absent is done again. So an account must be whole, nothing in it may contradict our
//! books, and [`Rules::grace`] must be long enough that whatever was sent before is in it.

mod acting;
mod books;
#[cfg(feature = "csv")]
mod csv_export;
mod entry;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(feature = "http-destination")]
mod http_list;
mod pulling;
mod raw_json;
mod report;
mod settings;
mod source;

use std::fmt;
use std::time::Duration;

use firstwrite_core::findings::{Findings, Run};
use firstwrite_core::reconcile::{Class, Comparison, Sight, Theirs, Verdict, compare};
use firstwrite_core::{Store, StoreError, StoreErrorKind, Timestamp};

#[cfg(feature = "csv")]
pub use csv_export::{CsvColumns, CsvExport};
pub use entry::{Made, Reading, Texts, TimeForm};
pub use firstwrite_core::reconcile::{AnswerBody, AnswerTemplate, Contradiction, Rules, Window};
#[cfg(feature = "http-destination")]
pub use http_list::{HttpItems, HttpList, HttpListSource, Paging};
pub use report::{ClassCounts, NotedCounts, Preview, Progress, Read, Report};
pub use settings::{Limits, MessageScope, RecordScope, Settings, SettingsError};
pub use source::{Export, Flaw, Source, SourceError, SourcePage, StatedExtent};

use books::{Books, before};
use pulling::Pulled;

/// A run that could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The settings cannot hold.
    Settings(SettingsError),
    /// The store keeps no messages to compare with, or no findings.
    Unsupported(&'static str),
    /// The store failed. What was settled before stays settled.
    Store(StoreError),
}

/// Compares our books with what `source` has of `window`, and acts on it.
///
/// A source that fails or has flaws does not end the run: what it does have can prove something, and only
/// absence can not. The report says so.
pub async fn reconcile_once(
    store: &dyn Store,
    source: &dyn Source,
    settings: &Settings,
    window: Window,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, ReconcileError> {
    let findings = check(store, settings)?;
    let now = store.now().await?;
    // Theirs first: whatever they did by then was asked for here before, and is found in what is read next.
    let mut pulled = pulling::pull(source, window, &settings.limits, progress).await;
    let stated_until = source.as_export().and_then(|export| export.until);
    distrust_future(store, settings, now, stated_until, &mut pulled).await?;
    let read = Read { pages: pulled.page_count, theirs: pulled.theirs.len(), ours: 0 };
    let mut reading = |ours| progress(Progress::Reading(Read { ours, ..read }));
    let books = books::read(store, settings, window, &pulled.theirs, &mut reading).await?;
    let unknown = books::unknown_destination(store, settings, &books).await?;
    let sight = Sight {
        window,
        stated_until,
        is_theirs_complete: pulled.flaws.is_empty(),
        is_ours_complete: books.is_complete,
        now,
    };
    let (books, theirs, comparison) = compare_books(books, pulled.theirs, sight, settings).await?;
    let Comparison { verdicts, contradictions } = comparison;
    progress(Progress::Compared(verdicts.len()));
    let mut report = Report {
        window,
        is_complete: sight.is_theirs_complete && sight.is_ours_complete,
        flaws: pulled.flaws,
        read: Read { ours: books.ours.len(), ..read },
        classes: ClassCounts::of(&verdicts),
        contradictions,
        preview: Preview::default(),
        delivered: 0,
        resent: 0,
        completed: 0,
        freed: 0,
        moved: 0,
        found: Vec::new(),
        noted: NotedCounts::default(),
    };
    if !books.is_complete {
        let detail = "more messages or records than are read in a run; choose a shorter window";
        report.flaws.push(Flaw::new("our books", detail));
    }
    if let Some(destination) = unknown {
        let detail = format!("no message to `{destination}` is in the store; is its name right?");
        tracing::warn!(source = settings.source, detail, "a reconciliation compared no messages");
        report.flaws.push(Flaw::new("our books", detail));
        // A person who applies the first run must have seen what it compares.
        let has_run = findings.last_run(&settings.source).await?.is_some();
        report.is_complete &= settings.apply_first_run || has_run;
    }
    let compared = (&books, &theirs[..], &verdicts[..]);
    acting::settle(store, settings, compared, &mut report, progress).await?;
    if !settings.dry_run {
        acting::note(findings, &settings.source, now, &mut report).await?;
        if report.is_complete && source.as_export().is_none() {
            let run = run(&books, &theirs, &verdicts, sight, settings);
            findings.ran(&settings.source, window.from, &run).await?;
        }
    }
    Ok(report)
}

/// Notes what an account says of the future as flaws. `now` is when the reading began.
async fn distrust_future(
    store: &dyn Store,
    settings: &Settings,
    now: Timestamp,
    stated_until: Option<Timestamp>,
    pulled: &mut Pulled,
) -> Result<(), StoreError> {
    let latest = now.plus(settings.rules.tolerance);
    if stated_until.is_some_and(|until| latest < until) {
        pulled.flaw(Flaw::new("the export", "it is stated to reach into the future"));
    }
    if pulled.reaches_beyond(latest) {
        // Reading a long account takes a while, in which entries are made.
        pulled.distrust_future(store.now().await?, &settings.rules);
    }
    Ok(())
}

/// An absence needs a match before it: so much earlier than a doubt the account is read.
const WITNESS_WITHIN: Duration = Duration::from_hours(24);

/// The window of the next scheduled run: since the last one that was complete, what was too early to tell
/// then included, and far enough back to prove something about whatever is in doubt.
pub async fn next_window(store: &dyn Store, settings: &Settings) -> Result<Window, ReconcileError> {
    let findings = check(store, settings)?;
    let now = store.now().await?;
    let earliest = before(now, settings.limits.reach_back_max);
    let since = findings.last_run(&settings.source).await?.map(|run| run.again_from);
    // The first run looks back as far as delivered messages are kept.
    let kept_for = firstwrite_core::outbox::MESSAGES_KEPT_FOR;
    let mut from = since.unwrap_or_else(|| before(now, kept_for));
    if let Some(oldest) = books::oldest_in_doubt(store, settings).await? {
        from = from.min(before(oldest, settings.rules.grace.max(WITNESS_WITHIN)));
    }
    Ok(Window { from: from.max(earliest), until: now })
}

fn check<'a>(store: &'a dyn Store, settings: &Settings) -> Result<Findings<'a>, ReconcileError> {
    settings.check().map_err(ReconcileError::Settings)?;
    if settings.messages.is_some() && store.outbox().is_none() {
        return Err(ReconcileError::Unsupported("the store keeps no messages"));
    }
    Findings::of(store).ok_or(ReconcileError::Unsupported("the store keeps no findings"))
}

/// Books of up to this many entries are compared in about a millisecond.
const COMPARED_AT_ONCE_MAX: usize = 1000;

/// Compares, on a thread of its own where it takes a while.
async fn compare_books(
    books: Books,
    theirs: Vec<Theirs>,
    sight: Sight,
    settings: &Settings,
) -> Result<(Books, Vec<Theirs>, Comparison), ReconcileError> {
    let is_short = books.ours.len() + theirs.len() <= COMPARED_AT_ONCE_MAX;
    let settings = settings.clone();
    let comparing = move || {
        let mut comparison = compare(&books.ours, &theirs, &sight, &settings.rules);
        comparison.verdicts.retain(|verdict| {
            let is_unasked = verdict.class == Class::MissingHere;
            let forgotten = |place: &usize| settings.has_forgotten(&theirs[*place], sight.now);
            !(is_unasked && verdict.theirs.iter().any(forgotten))
        });
        (books, theirs, comparison)
    };
    if is_short {
        return Ok(comparing());
    }
    tokio::task::spawn_blocking(comparing).await.map_err(|error| {
        let failed = StoreError::definite(StoreErrorKind::Panicked, "comparing books");
        ReconcileError::Store(failed.caused_by(error))
    })
}

/// Returns the run to remember, with the time from which the next run must look again.
fn run(
    books: &Books,
    theirs: &[Theirs],
    verdicts: &[Verdict],
    sight: Sight,
    settings: &Settings,
) -> Run {
    let grace = settings.rules.grace;
    let end = sight.window.until.min(sight.now);
    let late = verdicts.iter().filter(|verdict| verdict.class == Class::Late);
    let late = late.flat_map(|verdict| {
        let our = verdict.ours.map(|index| books.ours[index].at);
        our.into_iter().chain(verdict.theirs.iter().map(|place| theirs[*place].at))
    });
    // What was asked for just before the end is judged when its grace is over, and its grace before it.
    // An effect can be older than its record, and is in the account of its own time.
    let young = before(end, grace.saturating_add(books.sent_before_max));
    let again_from = late.chain([young]).min().unwrap_or(end);
    Run { at: sight.now, until: end, again_from: before(again_from, grace) }
}

impl From<StoreError> for ReconcileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::Unsupported(what) => f.write_str(what),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReconcileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(error) => Some(error),
            Self::Unsupported(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}
