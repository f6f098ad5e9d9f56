//! `firstwrite reconcile run`: one comparison of each source.

use anyhow::Context as _;
use firstwrite::reconcile::{Progress, Report, Window, next_window, reconcile_once};
use firstwrite::worker::Account;
use firstwrite_core::Store;
use serde::Serialize;

use crate::command::{Exit, ReconcileRunFlags};
use crate::config::{File, UsageError};
use crate::keys::instant;
use crate::output::{self, Format, Table};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct RunDocument {
    sources: Vec<SourceDocument>,
}

#[derive(Debug, Serialize)]
struct SourceDocument {
    source: String,
    from: String,
    until: String,
    is_complete: bool,
    flaws: Vec<String>,
    read: ReadDocument,
    classes: ClassesDocument,
    delivered: usize,
    resent: usize,
    completed: usize,
    freed: usize,
    findings: Vec<FoundDocument>,
}

#[derive(Debug, Serialize)]
struct ReadDocument {
    pages: usize,
    theirs: usize,
    ours: usize,
}

#[derive(Debug, Serialize)]
struct ClassesDocument {
    matched: usize,
    differs: usize,
    duplicate: usize,
    missing_here: usize,
    missing_there: usize,
    likely: usize,
    absent: usize,
    late: usize,
}

#[derive(Debug, Serialize)]
struct FoundDocument {
    kind: &'static str,
    subject: String,
    detail: String,
}

/// The sources that are meant, with where their accounts come from.
pub(super) fn accounts(flags: &ReconcileRunFlags, file: &File) -> Result<Vec<Account>, UsageError> {
    if flags.csv.is_some() && flags.names.len() != 1 {
        return Err(UsageError::new("--csv is the account of one source; name it"));
    }
    let mut accounts = file.reconcile.build(&flags.names, flags.csv.as_deref())?;
    if accounts.is_empty() {
        return Err(UsageError::new(
            "no source is configured; add a section [reconcile.NAME] to the file given with --config",
        ));
    }
    for account in &mut accounts {
        account.settings.dry_run = flags.dry_run;
    }
    Ok(accounts)
}

pub(super) async fn run(
    store: &dyn Store,
    accounts: &[Account],
    flags: &ReconcileRunFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let mut reports = Vec::new();
    for Account { settings, source } in accounts {
        let mut window = next_window(store, settings)
            .await
            .with_context(|| format!("source {}", settings.source))?;
        window = Window {
            from: flags.from.unwrap_or(window.from),
            until: flags.until.unwrap_or(window.until),
        };
        anyhow::ensure!(window.from < window.until, "--from must be before --until");
        let mut shown = output::Progress::new("entries read", 0);
        let mut show = |progress: Progress| match progress {
            Progress::Pulling(read) | Progress::Reading(read) => {
                shown.show(read.theirs + read.ours);
            }
            Progress::Compared(_) => {}
            Progress::Acting { done, .. } => shown.show(done),
        };
        let report = reconcile_once(store, &**source, settings, window, &mut show)
            .await
            .with_context(|| format!("source {}", settings.source))?;
        shown.end();
        reports.push((settings.source.as_str(), report));
    }
    say(&reports, flags.dry_run, format)?;
    let is_complete = reports.iter().all(|(_, report)| report.is_complete);
    let is_clear = reports.iter().all(|(_, report)| report.found.len() == report.noted.closed);
    Ok(match (is_clear, is_complete) {
        (false, _) => Exit::Found,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Done,
    })
}

fn say(reports: &[(&str, Report)], is_dry: bool, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        let sources = reports.iter().map(|(source, report)| document(source, report)).collect();
        return output::document(&RunDocument { sources });
    }
    for (source, report) in reports {
        let (from, until) = (instant(report.window.from), instant(report.window.until));
        output::data(&format!("{source}: {from} to {until}\n"))?;
        let mut table = Table::new(["WHAT", "ENTRIES"]);
        let classes = report.classes;
        for (what, count) in [
            ("matched", classes.matched),
            ("too early to tell", classes.late),
            ("not there, and not expected", classes.absent),
            ("missing here", classes.missing_here),
            ("missing there", classes.missing_there),
            ("differs", classes.differs),
            ("duplicate", classes.duplicate),
            ("likely, and not proven", classes.likely),
            ("settled: messages delivered", report.delivered),
            ("settled: messages sent again", report.resent),
            ("settled: requests completed", report.completed),
            ("settled: keys freed", report.freed),
        ] {
            if count > 0 || what == "matched" {
                table.row([what.to_owned(), count.to_string()]);
            }
        }
        output::data(&table.to_string())?;
        let mut table = Table::new(["FINDING", "SUBJECT", "DETAIL"]);
        for found in &report.found {
            let kind = found.kind.as_str().to_owned();
            table.row([kind, found.subject.clone(), found.detail.clone()]);
        }
        if !report.found.is_empty() {
            output::data(&table.to_string())?;
        }
        for flaw in &report.flaws {
            output::note(&format!("{source}: {flaw}"));
        }
        if !report.is_complete {
            output::note("the account is not complete: nothing was taken to be absent");
        }
    }
    if is_dry {
        output::note("nothing was settled or noted; leave --dry-run out to do it");
    }
    Ok(())
}

fn document(source: &str, report: &Report) -> SourceDocument {
    let (classes, read) = (report.classes, report.read);
    SourceDocument {
        source: source.to_owned(),
        from: instant(report.window.from),
        until: instant(report.window.until),
        is_complete: report.is_complete,
        flaws: report.flaws.iter().map(ToString::to_string).collect(),
        read: ReadDocument { pages: read.pages, theirs: read.theirs, ours: read.ours },
        classes: ClassesDocument {
            matched: classes.matched,
            differs: classes.differs,
            duplicate: classes.duplicate,
            missing_here: classes.missing_here,
            missing_there: classes.missing_there,
            likely: classes.likely,
            absent: classes.absent,
            late: classes.late,
        },
        delivered: report.delivered,
        resent: report.resent,
        completed: report.completed,
        freed: report.freed,
        findings: report
            .found
            .iter()
            .map(|found| FoundDocument {
                kind: found.kind.as_str(),
                subject: found.subject.clone(),
                detail: found.detail.clone(),
            })
            .collect(),
    }
}
