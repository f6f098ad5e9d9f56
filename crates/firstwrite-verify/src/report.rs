//! The report of a run and its output formats.

mod html;
mod json;
mod junit;
mod timeline;

use std::time::Duration;

use crate::finding::{Finding, Verdict};
use crate::grade::Grade;
use crate::profile::Profile;
use crate::timeline::Exchange;

/// The results of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// URL of the operation.
    pub target: String,
    /// Its method.
    pub method: String,
    /// Profile of expectations.
    pub profile: Profile,
    /// Seed of the run's choices.
    pub seed: u64,
    /// Description of how effects were counted.
    pub effects: String,
    /// Number of requests sent.
    pub requests: u32,
    /// Duration of the run.
    pub took: Duration,
    /// Grade computed from the findings.
    pub grade: Grade,
    /// One finding for each check, in the order of the catalogue.
    pub findings: Vec<Finding>,
    /// Times of requests, for the timeline.
    pub exchanges: Vec<Exchange>,
}

/// Number of checks by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// As expected.
    pub passed: usize,
    /// Not as expected.
    pub failed: usize,
    /// Something was not given.
    pub not_asked: usize,
    /// No concern of this API or profile.
    pub does_not_apply: usize,
}

impl Report {
    /// Counts the checks by verdict.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for finding in &self.findings {
            match finding.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::NotAsked => counts.not_asked += 1,
                Verdict::DoesNotApply => counts.does_not_apply += 1,
            }
        }
        counts
    }

    /// Returns the failed checks, the worst first.
    pub fn failures(&self) -> Vec<&Finding> {
        let mut failures: Vec<&Finding> =
            self.findings.iter().filter(|one| severity(one).is_some()).collect();
        failures.sort_by_key(|finding| std::cmp::Reverse(severity(finding)));
        failures
    }
}

fn severity(finding: &Finding) -> Option<crate::catalogue::Severity> {
    match finding.verdict {
        Verdict::Failed(severity) => Some(severity),
        Verdict::Passed | Verdict::NotAsked | Verdict::DoesNotApply => None,
    }
}

/// The word for a verdict; a mark that needs no colour stands before it.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed(_) => "failed",
        Verdict::NotAsked => "not asked",
        Verdict::DoesNotApply => "does not apply",
    }
}
