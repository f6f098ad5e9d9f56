//! The report as `JUnit` XML, for CI servers that show tests.

use std::fmt::Write as _;

use super::{Report, severity};
use crate::finding::Verdict;

impl Report {
    /// One suite, one case per check; what was not asked, or does not apply, is skipped with its reason.
    pub fn to_junit(&self) -> String {
        let counts = self.counts();
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let skipped = counts.not_asked + counts.does_not_apply;
        writeln!(
            text,
            "<testsuite name=\"firstwrite verify {} {}\" tests=\"{}\" failures=\"{}\" errors=\"0\" \
             skipped=\"{skipped}\" time=\"{:.3}\">",
            escaped(&self.method),
            escaped(&self.target),
            self.findings.len(),
            counts.failed,
            self.took.as_secs_f64()
        )
        .expect(INFALLIBLE);
        for finding in &self.findings {
            let group = finding.check.id.split('-').next().unwrap_or_default();
            let case =
                format!("  <testcase classname=\"verify.{group}\" name=\"{}\"", finding.check.id);
            let found = escaped(&finding.found);
            match finding.verdict {
                Verdict::Passed => writeln!(text, "{case}/>"),
                Verdict::NotAsked | Verdict::DoesNotApply => {
                    writeln!(text, "{case}><skipped message=\"{found}\"/></testcase>")
                }
                Verdict::Failed(_) => writeln!(
                    text,
                    "{case}><failure type=\"{}\" message=\"{}\">sent: {}\nfound: {found}\nto mend it: {}\
                     </failure></testcase>",
                    severity(finding).map(|severity| severity.to_string()).unwrap_or_default(),
                    escaped(finding.check.expected),
                    escaped(&finding.sent),
                    escaped(finding.check.fix)
                ),
            }
            .expect(INFALLIBLE);
        }
        text.push_str("</testsuite>\n");
        text
    }
}

pub(super) const INFALLIBLE: &str = "a string takes everything";

/// Text for XML and HTML. What XML cannot hold at all is replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            character if character.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_leave_its_place() {
        assert_eq!(
            escaped("<a href=\"x\">'&\u{1}\u{1b}"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}\u{fffd}"
        );
    }
}
