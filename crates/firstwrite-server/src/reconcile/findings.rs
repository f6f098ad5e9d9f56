//! `firstwrite reconcile findings`, `assign` and `resolve`: what a person has to look at, and did.

use firstwrite_core::Timestamp;
use firstwrite_core::findings::{Closing, Finding, FindingQuery, Findings};
use serde::Serialize;

use crate::command::{AssignFlags, Exit, FindingsFlags, ResolveFlags};
use crate::keys::{brief, instant};
use crate::output::{self, Format, Table};

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct PageDocument {
    findings: Vec<FindingDocument>,
    /// Value of `--after` for the next page.
    next: Option<i64>,
    /// The store's clock when the page was read.
    now: String,
}

#[derive(Debug, Serialize)]
struct FindingDocument {
    number: i64,
    source: String,
    kind: &'static str,
    subject: String,
    detail: String,
    message: Option<i64>,
    record: Option<String>,
    provider_id: Option<String>,
    first_seen: String,
    last_seen: String,
    owner: Option<String>,
    closed: Option<ClosedDocument>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audits: Vec<AuditDocument>,
    /// Older audit entries that are not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    audits_dropped: Option<u32>,
}

#[derive(Debug, Serialize)]
struct ClosedDocument {
    at: String,
    by: String,
    resolution: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
struct AuditDocument {
    at: String,
    actor: String,
    action: String,
    reason: String,
}

/// The document of `assign` and `resolve`.
#[derive(Debug, Serialize)]
struct DoneDocument {
    number: i64,
    is_done: bool,
}

pub(super) async fn list(
    findings: Findings<'_>,
    flags: &FindingsFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    if let Some(number) = flags.number {
        let Some(story) = findings.get(number).await? else {
            output::error(&format!("there is no finding {}", number.0));
            return Ok(Exit::Absent);
        };
        let mut document = FindingDocument::of(&story.finding);
        document.audits = story
            .audits
            .iter()
            .map(|audited| AuditDocument {
                at: instant(audited.at),
                actor: audited.entry.actor.clone(),
                action: audited.entry.action.clone(),
                reason: audited.entry.reason.clone(),
            })
            .collect();
        document.audits_dropped = Some(story.audits_dropped).filter(|count| *count > 0);
        match format {
            Format::Json => output::document(&document)?,
            Format::Table => output::data(&one(&document))?,
        }
        return Ok(Exit::Done);
    }
    let query = FindingQuery {
        source: flags.source.clone(),
        kind: flags.kind,
        is_open: if flags.all { None } else { Some(true) },
        after: flags.after,
        limit: usize::from(flags.limit),
    };
    let page = findings.list(&query).await?;
    match format {
        Format::Json => output::document(&PageDocument {
            findings: page.findings.iter().map(FindingDocument::of).collect(),
            next: page.next.map(|number| number.0),
            now: instant(page.now),
        })?,
        Format::Table => {
            output::data(&table(&page.findings, page.now).to_string())?;
            if page.findings.is_empty() {
                output::note("no findings match");
            }
            if let Some(next) = page.next {
                output::note(&format!("there are more; add --after {}", next.0));
            }
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn assign(
    findings: Findings<'_>,
    flags: &AssignFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let by = flags.word.entry("assign");
    let is_done = findings.assign(flags.number, flags.to.as_ref(), &by).await?;
    done(flags.number.0, is_done, "assigned", format)
}

pub(super) async fn resolve(
    findings: Findings<'_>,
    flags: &ResolveFlags,
    format: Format,
) -> anyhow::Result<Exit> {
    let reason = &flags.word.reason;
    let closing = if flags.fixed { Closing::fixed(reason)? } else { Closing::accepted(reason)? };
    let by = flags.word.entry("resolve");
    let is_done = findings.close(flags.number, &closing, &by).await?;
    done(flags.number.0, is_done, closing.as_str(), format)
}

fn done(number: i64, is_done: bool, what: &str, format: Format) -> anyhow::Result<Exit> {
    match format {
        Format::Json => output::document(&DoneDocument { number, is_done })?,
        Format::Table if is_done => output::data(&format!("finding {number}: {what}\n"))?,
        Format::Table => output::error(&format!("there is no open finding {number}")),
    }
    Ok(if is_done { Exit::Done } else { Exit::Absent })
}

fn table(findings: &[Finding], now: Timestamp) -> Table<8> {
    let headings = ["NUMBER", "SOURCE", "KIND", "SUBJECT", "AGE", "OWNER", "CLOSED", "DETAIL"];
    let mut table = Table::new(headings);
    for finding in findings {
        let closed = finding.closed.as_ref().map(|closed| closed.closing.as_str().to_owned());
        table.row([
            finding.number.0.to_string(),
            finding.source.clone(),
            finding.found.kind.as_str().to_owned(),
            finding.found.subject.clone(),
            brief(now.since(finding.first_seen)),
            finding.owner.clone().unwrap_or_else(|| "-".to_owned()),
            closed.unwrap_or_else(|| "-".to_owned()),
            finding.found.detail.clone(),
        ]);
    }
    table
}

fn one(finding: &FindingDocument) -> String {
    let mut table = Table::new(["FINDING", ""]);
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let message = finding.message.map(|message| message.to_string());
    for (name, value) in [
        ("number", finding.number.to_string()),
        ("source", finding.source.clone()),
        ("kind", finding.kind.to_owned()),
        ("subject", finding.subject.clone()),
        ("detail", finding.detail.clone()),
        ("message", text(&message)),
        ("record", text(&finding.record)),
        ("provider's id", text(&finding.provider_id)),
        ("first seen", finding.first_seen.clone()),
        ("last seen", finding.last_seen.clone()),
        ("owner", text(&finding.owner)),
    ] {
        table.row([name.to_owned(), value]);
    }
    if let Some(count) = finding.audits_dropped {
        table.row(["older changes".to_owned(), format!("{count}, not kept any more")]);
    }
    for audit in &finding.audits {
        table
            .row([audit.at.clone(), format!("{} {}: {}", audit.actor, audit.action, audit.reason)]);
    }
    table.to_string()
}

impl FindingDocument {
    fn of(finding: &Finding) -> Self {
        let found = &finding.found;
        Self {
            number: finding.number.0,
            source: finding.source.clone(),
            kind: found.kind.as_str(),
            subject: found.subject.clone(),
            detail: found.detail.clone(),
            message: found.message.map(|message| message.0),
            record: found.record.map(|record| record.to_string()),
            provider_id: found.provider_id.clone(),
            first_seen: instant(finding.first_seen),
            last_seen: instant(finding.last_seen),
            owner: finding.owner.clone(),
            closed: finding.closed.as_ref().map(|closed| ClosedDocument {
                at: instant(closed.at),
                by: closed.by.clone(),
                resolution: closed.closing.as_str(),
                reason: closed.closing.text().to_owned(),
            }),
            audits: Vec::new(),
            audits_dropped: None,
        }
    }
}
