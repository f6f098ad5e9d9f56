//! Terminal output of `firstwrite verify`: words as marks, so that no colour is needed.

use std::fmt::Write as _;

use firstwrite_verify::{CHECKS, Finding, Report, Verdict};
use serde::Serialize;

use crate::output::{self, Format, Table, printable};

#[derive(Serialize)]
struct Row {
    id: &'static str,
    severity: String,
    expected: &'static str,
    fix: &'static str,
}

/// Every check there is.
pub(super) fn list(format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            let rows: Vec<Row> = CHECKS
                .iter()
                .map(|check| Row {
                    id: check.id,
                    severity: check.severity.to_string(),
                    expected: check.expected,
                    fix: check.fix,
                })
                .collect();
            output::document(&rows)
        }
        Format::Table => {
            let mut table = Table::new(["CHECK", "SEVERITY", "EXPECTED"]);
            for check in CHECKS {
                let severity = check.severity.to_string();
                table.row([check.id.to_owned(), severity, check.expected.to_owned()]);
            }
            output::data(&table.to_string())
        }
    }
}

/// A line for each check, more where something failed, and the grade last.
pub(super) fn report(report: &Report) -> anyhow::Result<()> {
    let mut text = format!(
        "{} {}\nprofile {}; effects by {}\n\n",
        report.method,
        report.target,
        report.profile.name(),
        report.effects
    );
    for finding in &report.findings {
        line(&mut text, finding)?;
    }
    let counts = report.counts();
    let of = match report.findings.len() {
        all if all == CHECKS.len() => String::new(),
        some => format!(" by {some} of {} checks", CHECKS.len()),
    };
    write!(
        text,
        "\ngrade {}{of}: {} passed, {} failed, {} not asked, {} do not apply\n{} requests in {:.1} s, seed {}\n",
        report.grade,
        counts.passed,
        counts.failed,
        counts.not_asked,
        counts.does_not_apply,
        report.requests,
        report.took.as_secs_f64(),
        report.seed
    )?;
    output::data(&text)
}

fn line(text: &mut String, finding: &Finding) -> anyhow::Result<()> {
    let check = finding.check;
    match finding.verdict {
        Verdict::Passed => writeln!(text, "pass  {:22} {}", check.id, check.expected)?,
        Verdict::NotAsked => {
            writeln!(text, "?     {:22} not asked: {}", check.id, printable(&finding.found))?;
        }
        Verdict::DoesNotApply => {
            writeln!(text, "-     {:22} does not apply: {}", check.id, printable(&finding.found))?;
        }
        Verdict::Failed(severity) => {
            writeln!(text, "FAIL  {:22} {severity}: expected that {}", check.id, check.expected)?;
            writeln!(text, "      sent:  {}", printable(&finding.sent))?;
            writeln!(text, "      found: {}", printable(&finding.found))?;
            writeln!(text, "      mend:  {}", check.fix)?;
        }
    }
    Ok(())
}
