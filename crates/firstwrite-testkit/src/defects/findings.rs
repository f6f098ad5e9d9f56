//! The mistakes that can be planted in keeping findings.

use firstwrite_core::findings::{
    Closing, FindingNumber, FindingPage, FindingQuery, FindingStory, Findings, NewFinding, Noted,
    Owner, Run,
};
use firstwrite_core::{AuditEntry, BoxFuture, Store, StoreError, Timestamp};

use super::{Defect, DefectiveStore};

impl Findings for DefectiveStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        Box::pin(async move {
            let mut found = found.to_vec();
            let mut seen_at = seen_at;
            for found in &mut found {
                if self.has(Defect::FindingKindForgotten) {
                    found.kind = firstwrite_core::FindingKind::Duplicate;
                }
                if self.has(Defect::AcceptedComesBack) {
                    found.detail = format!("{} at {seen_at}", found.detail);
                }
            }
            if self.has(Defect::FixedStaysClosed) {
                seen_at = Timestamp::EPOCH;
            }
            if self.has(Defect::OldSightReopens) {
                seen_at = self.memory().now().await?;
            }
            self.memory().note(source, &found, seen_at).await
        })
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        Box::pin(async move { self.memory().found(query).await })
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(async move { self.memory().finding(number).await })
    }

    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move { self.memory().assign(number, owner, by).await })
    }

    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move { self.memory().close(number, closing, by).await })
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        Box::pin(async move { self.memory().last_run(source).await })
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.memory().ran(source, run).await })
    }
}
