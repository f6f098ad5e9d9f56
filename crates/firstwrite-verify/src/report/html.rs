//! The report as one page that needs nothing else: no script, no font, no request.

use std::fmt::Write as _;

use super::junit::{INFALLIBLE, escaped};
use super::timeline::pictures;
use super::{Report, severity, word};
use crate::finding::{Finding, Verdict};

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#c4322c;--soft:#777;--warn:#9a6700}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
.grade{float:right;font-size:3.2rem;line-height:1;border:3px solid;border-radius:.5rem;padding:.4rem 1rem}\
.A,.B{color:var(--good)}.C,.D{color:var(--warn)}.F{color:var(--bad)}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:0}dt{color:var(--soft)}\
dd{margin:0;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.35rem .5rem;\
border-top:1px solid var(--line)}td:first-child,td code{white-space:nowrap}\
.failed td:first-child{color:var(--bad);font-weight:600}.passed td:first-child{color:var(--good)}\
.other{color:var(--soft)}code,.found{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}\
details summary{cursor:pointer}svg{width:100%;height:auto;border:1px solid var(--line);border-radius:.3rem}\
svg text{font:9px ui-monospace,monospace;fill:currentColor}.axis{opacity:.7}.tick{stroke:currentColor;opacity:.15}\
.way{stroke:currentColor;opacity:.4}rect.ran{fill:var(--good)}rect.refused{fill:var(--warn)}\
rect.failed{fill:var(--bad)}";

impl Report {
    /// One page.
    pub fn to_html(&self) -> String {
        let counts = self.counts();
        let mut page = String::new();
        write!(
            page,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <title>{grade}: retries of {target}</title><style>{STYLE}</style></head><body>\n\
             <div class=\"grade {grade}\" aria-label=\"grade {grade}\">{grade}</div>\
             <h1>Are retries safe?</h1>\n<dl><dt>asked</dt><dd>{method} {target}</dd>\
             <dt>profile</dt><dd>{}</dd><dt>effects</dt><dd>{}</dd><dt>seed</dt><dd>{}</dd>\
             <dt>sent</dt><dd>{} requests in {:.1} s</dd><dt>checks</dt><dd>{} passed, {} failed, {} not asked, \
             {} do not apply</dd></dl>\n",
            self.profile.name(),
            escaped(&self.effects),
            self.seed,
            self.requests,
            self.took.as_secs_f64(),
            counts.passed,
            counts.failed,
            counts.not_asked,
            counts.does_not_apply,
            grade = self.grade,
            target = escaped(&self.target),
            method = escaped(&self.method),
        )
        .expect(INFALLIBLE);
        let failures = self.failures();
        if !failures.is_empty() {
            page.push_str("<h2>What failed</h2>\n");
            for finding in failures {
                failure(&mut page, finding);
            }
        }
        page.push_str("<h2>Every check</h2>\n<table><tr><th>verdict</th><th>check</th><th>expected</th></tr>\n");
        for finding in &self.findings {
            row(&mut page, finding);
        }
        page.push_str("</table>\n");
        let pictures = pictures(&self.exchanges);
        if !pictures.is_empty() {
            page.push_str("<h2>Requests that met</h2>\n<p>A line each: the thin part is connecting and \
                           sending, the bar is waiting for the answer, whose status stands behind it.</p>\n");
        }
        for (scene, svg) in pictures {
            write!(page, "<h3>{}</h3>\n{svg}\n", escaped(scene)).expect(INFALLIBLE);
        }
        page.push_str("</body></html>\n");
        page
    }
}

fn failure(page: &mut String, finding: &Finding) {
    let severity = severity(finding).map(|severity| severity.to_string()).unwrap_or_default();
    write!(
        page,
        "<h3>✗ {} <small>({severity})</small></h3>\n<dl><dt>expected</dt><dd>{}</dd><dt>sent</dt>\
         <dd class=\"found\">{}</dd><dt>found</dt><dd class=\"found\">{}</dd><dt>to mend it</dt><dd>{}</dd></dl>\n",
        finding.check.id,
        escaped(finding.check.expected),
        escaped(&finding.sent),
        escaped(&finding.found),
        escaped(finding.check.fix)
    )
    .expect(INFALLIBLE);
}

fn row(page: &mut String, finding: &Finding) {
    let (class, mark) = match finding.verdict {
        Verdict::Passed => ("passed", "✓"),
        Verdict::Failed(_) => ("failed", "✗"),
        Verdict::NotAsked => ("other", "?"),
        Verdict::DoesNotApply => ("other", "–"),
    };
    let sent = if finding.sent.is_empty() {
        String::new()
    } else {
        format!("<b>sent</b> {}<br>", escaped(&finding.sent))
    };
    writeln!(
        page,
        "<tr class=\"{class}\"><td>{mark} {}</td><td><code>{}</code></td><td><details><summary>{}</summary>\
         <div class=\"found\">{sent}<b>found</b> {}</div></details></td></tr>",
        word(finding.verdict),
        finding.check.id,
        escaped(finding.check.expected),
        escaped(&finding.found)
    )
    .expect(INFALLIBLE);
}
