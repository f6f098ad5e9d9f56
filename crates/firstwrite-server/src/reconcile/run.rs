//! `firstwrite reconcile run`: one comparison of each source.

use anyhow::Context as _;
use firstwrite::reconcile::{
    Preview, Progress, Report, Settings, Window, next_window, reconcile_once,
};
use firstwrite::worker::Account;
use firstwrite_core::reconcile::Subject;
use firstwrite_core::{Findings, Store};
use serde::Serialize;

use crate::command::{Exit, ReconcileRunFlags};
use crate::config::{Export, File, UsageError};
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
    is_dry: bool,
    is_complete: bool,
    flaws: Vec<String>,
    /// Reasons why an absence does not count as proof.
    contradictions: Vec<&'static str>,
    read: ReadDocument,
    classes: ClassesDocument,
    delivered: usize,
    resent: usize,
    completed: usize,
    freed: usize,
    /// Settlements that a dry run would make.
    preview: PreviewDocument,
    findings: Vec<FoundDocument>,
}

#[derive(Debug, Serialize)]
struct PreviewDocument {
    delivered: usize,
    resent: usize,
    completed: usize,
    freed: usize,
    /// The first of them.
    named: Vec<PreviewedDocument>,
}

#[derive(Debug, Serialize)]
struct PreviewedDocument {
    action: &'static str,
    subject: String,
    provider_id: Option<String>,
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
    unproven: usize,
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
    let export = Export { file: flags.csv.as_deref(), until: flags.until };
    let accounts = file.reconcile.build(&flags.names, &export, &file.destinations)?;
    if accounts.is_empty() {
        return Err(UsageError::new(
            "no source is configured; add a section [reconcile.NAME] to the file given with --config",
        ));
    }
    Ok(accounts)
}

/// Turns runs that have not been applied before into dry runs: the first run of a source, and every run over an
/// export, unless `--apply` is given.
pub(super) async fn decide_dry_runs(
    store: &dyn Store,
    accounts: &[Account],
    flags: &ReconcileRunFlags,
) -> anyhow::Result<Vec<Account>> {
    let findings = Findings::of(store).context("this store keeps no findings")?;
    let mut accounts = accounts.to_vec();
    for Account { settings, source } in &mut accounts {
        let is_known = source.as_export().is_none()
            && (settings.apply_first_run || findings.last_run(&settings.source).await?.is_some());
        settings.dry_run = flags.dry_run || !(flags.apply || is_known);
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
            Progress::Acting { done, .. } => shown.show(done),
            Progress::Compared(_) | _ => {}
        };
        let report = reconcile_once(store, &**source, settings, window, &mut show)
            .await
            .with_context(|| format!("source {}", settings.source))?;
        shown.end();
        reports.push((settings, report));
    }
    say(&reports, format)?;
    let is_complete = reports.iter().all(|(_, report)| report.is_complete);
    let is_clear = reports.iter().all(|(_, report)| report.found.len() == report.noted.closed);
    Ok(match (is_clear, is_complete) {
        (false, _) => Exit::Found,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Done,
    })
}

fn say(reports: &[(&Settings, Report)], format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        let sources = reports.iter().map(|(settings, report)| document(settings, report)).collect();
        return output::document(&RunDocument { sources });
    }
    for (Settings { source, dry_run, .. }, report) in reports {
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
            ("not there, which proves nothing", classes.unproven),
            ("settled: messages delivered", report.delivered),
            ("settled: messages sent again", report.resent),
            ("settled: requests completed", report.completed),
            ("settled: keys freed", report.freed),
            ("would settle: messages delivered", report.preview.delivered),
            ("would settle: messages sent again", report.preview.resent),
            ("would settle: requests completed", report.preview.completed),
            ("would settle: keys freed", report.preview.freed),
        ] {
            if count > 0 || what == "matched" {
                table.row([what.to_owned(), count.to_string()]);
            }
        }
        output::data(&table.to_string())?;
        let mut table = Table::new(["WOULD", "SUBJECT", "PROVIDER'S ID"]);
        for PreviewedDocument { action, subject, provider_id } in previewed(&report.preview) {
            table.row([action.to_owned(), subject, provider_id.unwrap_or_default()]);
        }
        if !report.preview.named.is_empty() {
            output::data(&table.to_string())?;
        }
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
            output::note(&format!(
                "{source}: the run is not complete, for the reasons above: nothing was taken to be absent"
            ));
        }
        for why in &report.contradictions {
            let why = why.as_str();
            output::note(&format!("{source}: no absence was taken for a proof: {why}"));
        }
        if *dry_run {
            output::note(&format!("{source}: nothing was settled or noted; --apply does it"));
        }
    }
    Ok(())
}

fn previewed(preview: &Preview) -> impl Iterator<Item = PreviewedDocument> {
    preview.named.iter().map(|(subject, provider_id)| {
        let action = match (subject, provider_id) {
            (Subject::Message(_), Some(_)) => "deliver",
            (Subject::Message(_), None) => "send",
            (Subject::Record(_), Some(_)) => "complete",
            (Subject::Record(_), None) => "free",
        };
        let (subject, provider_id) = (subject.to_string(), provider_id.clone());
        PreviewedDocument { action, subject, provider_id }
    })
}

fn document(settings: &Settings, report: &Report) -> SourceDocument {
    let (classes, read, preview) = (report.classes, report.read, &report.preview);
    SourceDocument {
        source: settings.source.clone(),
        from: instant(report.window.from),
        until: instant(report.window.until),
        is_dry: settings.dry_run,
        is_complete: report.is_complete,
        flaws: report.flaws.iter().map(ToString::to_string).collect(),
        contradictions: report.contradictions.iter().map(|why| why.as_str()).collect(),
        read: ReadDocument { pages: read.pages, theirs: read.theirs, ours: read.ours },
        classes: ClassesDocument {
            matched: classes.matched,
            differs: classes.differs,
            duplicate: classes.duplicate,
            missing_here: classes.missing_here,
            missing_there: classes.missing_there,
            likely: classes.likely,
            absent: classes.absent,
            unproven: classes.unproven,
            late: classes.late,
        },
        delivered: report.delivered,
        resent: report.resent,
        completed: report.completed,
        freed: report.freed,
        preview: PreviewDocument {
            delivered: preview.delivered,
            resent: preview.resent,
            completed: preview.completed,
            freed: preview.freed,
            named: previewed(preview).collect(),
        },
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
