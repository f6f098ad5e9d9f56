//! Findings of the store in memory: the reference for what keeping them means.

use std::collections::BTreeMap;

use super::MemoryStore;
use crate::findings::{
    Closed, Closing, FINDINGS_KEPT_FOR, Finding, FindingNumber, FindingPage, FindingQuery,
    FindingStory, Findings, NOTED_MAX, NewFinding, Noted, Owner, Run,
};
use crate::{AuditEntry, Audited, BoxFuture, StoreError, Timestamp};

/// What is known of all findings.
#[derive(Debug, Default)]
pub(super) struct Found {
    findings: BTreeMap<FindingNumber, (Finding, Vec<Audited>)>,
    last_number: i64,
    runs: BTreeMap<String, Run>,
}

impl Found {
    fn note(&mut self, source: &str, found: &NewFinding, seen_at: Timestamp) -> Noted {
        let is_same = |finding: &Finding| {
            finding.source == source
                && finding.found.kind == found.kind
                && finding.found.subject == found.subject
        };
        let known = self.findings.values_mut().map(|(finding, _)| finding);
        let Some(finding) = known.into_iter().find(|finding| is_same(finding)) else {
            self.last_number += 1;
            let number = FindingNumber(self.last_number);
            let finding = Finding {
                number,
                source: source.to_owned(),
                found: found.clone(),
                first_seen: seen_at,
                last_seen: seen_at,
                reopened_count: 0,
                owner: None,
                closed: None,
            };
            self.findings.insert(number, (finding, Vec::new()));
            return Noted::New(number);
        };
        let noted = finding.seen_again(found, seen_at);
        finding.last_seen = finding.last_seen.max(seen_at);
        match noted {
            // A closed finding says what was closed.
            Noted::Closed(_) => return noted,
            Noted::Reopened(_) => {
                finding.closed = None;
                finding.reopened_count += 1;
            }
            Noted::New(_) | Noted::Known(_) => {}
        }
        finding.found = found.clone();
        noted
    }

    fn forget(&mut self, now: Timestamp) {
        let is_old = |finding: &Finding| {
            finding.closed.as_ref().is_some_and(|closed| closed.at.plus(FINDINGS_KEPT_FOR) <= now)
        };
        let old = self.findings.iter().filter(|(_, (finding, _))| is_old(finding));
        let numbers: Vec<FindingNumber> = old.take(NOTED_MAX).map(|(number, _)| *number).collect();
        for number in numbers {
            self.findings.remove(&number);
        }
    }
}

impl Findings for MemoryStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        Box::pin(async move {
            let mut content = self.content();
            let found = found.iter().take(NOTED_MAX).map(|found| found.clone().within_limits());
            Ok(found.map(|found| content.found.note(source, &found, seen_at)).collect())
        })
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        Box::pin(async move {
            let content = self.content();
            let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
            let mut findings: Vec<Finding> = content
                .found
                .findings
                .iter()
                .filter(|(number, _)| query.after.is_none_or(|after| **number > after))
                .filter(|(_, (finding, _))| query.matches(finding))
                .take(limit + 1)
                .map(|(_, (finding, _))| finding.clone())
                .collect();
            let next = (findings.len() > limit).then(|| findings[limit - 1].number);
            findings.truncate(limit);
            Ok(FindingPage { findings, next, now: (self.clock)() })
        })
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(async move {
            let content = self.content();
            let known = content.found.findings.get(&number);
            Ok(known.map(|(finding, audits)| FindingStory {
                finding: finding.clone(),
                audits: audits.clone(),
                now: (self.clock)(),
            }))
        })
    }

    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let at = (self.clock)();
            let mut content = self.content();
            let Some((finding, audits)) = content.found.findings.get_mut(&number) else {
                return Ok(false);
            };
            finding.owner = owner.map(|owner| owner.as_str().to_owned());
            audits.push(Audited { at, entry: by.clone() });
            Ok(true)
        })
    }

    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let at = (self.clock)();
            let mut content = self.content();
            let Some((finding, audits)) = content.found.findings.get_mut(&number) else {
                return Ok(false);
            };
            if finding.closed.is_some() {
                return Ok(false);
            }
            finding.closed = Some(Closed { at, by: by.actor.clone(), closing: closing.clone() });
            audits.push(Audited { at, entry: by.clone() });
            Ok(true)
        })
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        Box::pin(async move { Ok(self.content().found.runs.get(source).copied()) })
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            content.found.runs.insert(source.to_owned(), *run);
            content.found.forget(now);
            Ok(())
        })
    }
}
