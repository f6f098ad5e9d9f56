//! Computes a grade from the findings, by rules simple enough to check by hand.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::catalogue::Severity;
use crate::finding::{Finding, Verdict};

/// A to F; better ones are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Grade {
    /// Nothing failed, and no critical check of the usual ones was left out.
    A,
    /// Only minor failures, or a critical check could not be asked.
    B,
    /// One major failure.
    C,
    /// More than one major failure.
    D,
    /// A critical failure.
    F,
}

/// Critical checks that need only a counter and another tenant: a run without them cannot get an A.
const NEEDED: [&str; 6] = [
    "replay-effects",
    "race-effects",
    "race-bodies",
    "cut-after-send",
    "tenant-independence",
    "credentials-missing",
];

/// The grade of these findings.
pub fn grade(findings: &[Finding]) -> Grade {
    let count = |severity| {
        findings.iter().filter(|finding| finding.verdict == Verdict::Failed(severity)).count()
    };
    let left_out = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::NotAsked && NEEDED.contains(&finding.check.id));
    match (count(Severity::Critical), count(Severity::Major), count(Severity::Minor)) {
        (1.., _, _) => Grade::F,
        (0, 2.., _) => Grade::D,
        (0, 1, _) => Grade::C,
        (0, 0, 1..) => Grade::B,
        (0, 0, 0) if left_out => Grade::B,
        (0, 0, 0) => Grade::A,
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        })
    }
}

impl FromStr for Grade {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::A, Self::B, Self::C, Self::D, Self::F]
            .into_iter()
            .find(|grade| grade.to_string().eq_ignore_ascii_case(text))
            .ok_or("A, B, C, D or F")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::named;

    fn graded(findings: &[(&str, Verdict)]) -> Grade {
        let findings: Vec<Finding> = findings
            .iter()
            .map(|(id, verdict)| Finding {
                check: named(id),
                verdict: *verdict,
                sent: String::new(),
                found: String::new(),
            })
            .collect();
        grade(&findings)
    }

    #[test]
    fn the_worst_failure_decides() {
        use Severity::{Critical, Major, Minor};
        use Verdict::{DoesNotApply, Failed, NotAsked, Passed};
        let passed = ("replay-body", Passed);
        assert_eq!(graded(&[passed]), Grade::A);
        assert_eq!(graded(&[passed, ("race-effects", NotAsked)]), Grade::B);
        assert_eq!(graded(&[passed, ("restart-replay", NotAsked)]), Grade::A);
        assert_eq!(graded(&[passed, ("tenant-independence", DoesNotApply)]), Grade::A);
        assert_eq!(graded(&[passed, ("key-256", Failed(Minor))]), Grade::B);
        assert_eq!(graded(&[("key-256", Failed(Minor)), ("other-body", Failed(Major))]), Grade::C);
        assert_eq!(
            graded(&[("key-empty", Failed(Major)), ("other-body", Failed(Major))]),
            Grade::D
        );
        assert_eq!(graded(&[("race-effects", Failed(Critical))]), Grade::F);
        assert!(Grade::A < Grade::F);
        assert_eq!("b".parse(), Ok(Grade::B));
        assert!("E".parse::<Grade>().is_err());
    }
}
