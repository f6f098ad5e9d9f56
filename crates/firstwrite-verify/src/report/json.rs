//! The report as one JSON document.

use serde::Serialize;

use super::{Report, severity, word};

/// Raised when a reader of the old form would misread the new one.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    target: &'a str,
    method: &'a str,
    profile: &'static str,
    seed: u64,
    effects_counted_by: &'a str,
    grade: String,
    requests: u32,
    milliseconds: u128,
    passed: usize,
    failed: usize,
    not_asked: usize,
    does_not_apply: usize,
    checks: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'static str,
    verdict: &'static str,
    /// Severity of the failure; absent if the check did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<String>,
    expected: &'static str,
    sent: &'a str,
    found: &'a str,
    /// Only with a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

impl Report {
    /// One JSON document, with a line feed at its end.
    pub fn to_json(&self) -> String {
        let counts = self.counts();
        let checks = self.findings.iter().map(|finding| Row {
            id: finding.check.id,
            verdict: word(finding.verdict),
            severity: severity(finding).map(|severity| severity.to_string()),
            expected: finding.check.expected,
            sent: &finding.sent,
            found: &finding.found,
            fix: severity(finding).map(|_| finding.check.fix),
        });
        let document = Document {
            version: VERSION,
            target: &self.target,
            method: &self.method,
            profile: self.profile.name(),
            seed: self.seed,
            effects_counted_by: &self.effects,
            grade: self.grade.to_string(),
            requests: self.requests,
            milliseconds: self.took.as_millis(),
            passed: counts.passed,
            failed: counts.failed,
            not_asked: counts.not_asked,
            does_not_apply: counts.does_not_apply,
            checks: checks.collect(),
        };
        let mut text =
            serde_json::to_string_pretty(&document).expect("texts and numbers are always JSON");
        text.push('\n');
        text
    }
}
