//! Findings in PostgreSQL.

mod rows;
mod statements;

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Pool;
use firstwrite_core::findings::{
    Closing, FINDINGS_KEPT_FOR, Finding, FindingNumber, FindingPage, FindingQuery, FindingStory,
    Findings, NOTED_MAX, NewFinding, Noted, Owner, Run,
};
use firstwrite_core::{AuditEntry, Audited, BoxFuture, FindingKind, StoreError, Timestamp};
use tokio_postgres::types::ToSql;

use super::columns::{At, Id};
use super::fault::{Trouble, corrupt, definite, failed_commit, no_connection};
use super::link::{Held, Link};
use super::listing::audited;
use super::outbox::listing::snapshot;
use super::outbox::operate::write;
use super::profiles::whole_millis;
use super::{Inner, PostgresStore, Shared};
use rows::{finding, run};
pub(super) use statements::FindingsSql;

/// What a finding is known by, within its source.
type Name<'a> = (FindingKind, &'a str);

/// See [`Findings::note`]. New ones are added first; what was there is then locked, and judged.
async fn note(
    shared: &Shared,
    pool: &Pool,
    source: &str,
    found: &[NewFinding],
    seen_at: Timestamp,
) -> Result<Vec<Noted>, StoreError> {
    const DOING: &str = "noting findings";
    let held = Held::new(pool.get().await.map_err(|error| no_connection(DOING)(&error))?);
    let link = held.link(shared);
    let added = add(&link, source, found, seen_at).await.map_err(definite(DOING))?;
    let noted = see(&link, source, found, (&added, seen_at)).await.map_err(definite(DOING))?;
    link.commit().await.map_err(failed_commit(DOING))?;
    held.settle();
    Ok(noted)
}

async fn add(
    link: &Link<'_>,
    source: &str,
    found: &[NewFinding],
    seen_at: Timestamp,
) -> Result<HashSet<FindingNumber>, Trouble> {
    let columns = Columns::new(found.iter());
    let given: [&(dyn ToSql + Sync); 8] = [
        &source,
        &columns.kinds,
        &columns.subjects,
        &columns.details,
        &columns.records,
        &columns.messages,
        &columns.provider_ids,
        &At::Instant(seen_at),
    ];
    let begin = &link.shared.server.begins().rare;
    let rows = link.begin(begin, &link.sql().findings.add, &given).await?;
    let numbers = rows.iter().map(|row| super::rows::column(row, 0).map(FindingNumber));
    Ok(numbers.collect::<Result<_, StoreError>>()?)
}

async fn see(
    link: &Link<'_>,
    source: &str,
    found: &[NewFinding],
    (added, seen_at): (&HashSet<FindingNumber>, Timestamp),
) -> Result<Vec<Noted>, Trouble> {
    let columns = Columns::new(found.iter());
    let given: [&(dyn ToSql + Sync); 3] = [&source, &columns.kinds, &columns.subjects];
    let rows = link.query(&link.sql().findings.same, &given).await?;
    let known: Vec<Finding> = rows.iter().map(finding).collect::<Result<_, StoreError>>()?;
    let known: HashMap<Name<'_>, &Finding> = known
        .iter()
        .map(|known| ((known.found.kind, known.found.subject.as_str()), known))
        .collect();
    let mut noted = Vec::with_capacity(found.len());
    let mut again: Vec<(FindingNumber, bool, &NewFinding)> = Vec::new();
    for found in found {
        let known = known.get(&(found.kind, found.subject.as_str()));
        let known = known.ok_or_else(|| corrupt("a finding that was noted is not there"))?;
        let is_new = added.contains(&known.number);
        let becomes =
            if is_new { Noted::New(known.number) } else { known.seen_again(found, seen_at) };
        if !is_new {
            again.push((known.number, !matches!(becomes, Noted::Closed(_)), found));
        }
        noted.push(becomes);
    }
    let numbers: Vec<i64> = again.iter().map(|(number, ..)| number.0).collect();
    let are_open: Vec<bool> = again.iter().map(|(_, is_open, _)| *is_open).collect();
    let columns = Columns::new(again.iter().map(|(.., found)| *found));
    let given: [&(dyn ToSql + Sync); 7] = [
        &numbers,
        &are_open,
        &columns.details,
        &columns.records,
        &columns.messages,
        &columns.provider_ids,
        &At::Instant(seen_at),
    ];
    link.query(&link.sql().findings.see_again, &given).await?;
    Ok(noted)
}

/// Findings by their columns.
struct Columns<'a> {
    kinds: Vec<&'static str>,
    subjects: Vec<&'a str>,
    details: Vec<&'a str>,
    records: Vec<Option<Id>>,
    messages: Vec<Option<i64>>,
    provider_ids: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn new(found: impl Iterator<Item = &'a NewFinding> + Clone) -> Self {
        Self {
            kinds: found.clone().map(|found| found.kind.as_str()).collect(),
            subjects: found.clone().map(|found| found.subject.as_str()).collect(),
            details: found.clone().map(|found| found.detail.as_str()).collect(),
            records: found.clone().map(|found| found.record.map(Id)).collect(),
            messages: found.clone().map(|found| found.message.map(|number| number.0)).collect(),
            provider_ids: found.map(|found| found.provider_id.as_deref()).collect(),
        }
    }
}

impl Findings for PostgresStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        Box::pin(async move {
            self.writes("noting findings")?;
            let Inner { shared, pool, .. } = &*self.inner;
            let found: Vec<NewFinding> =
                found.iter().take(NOTED_MAX).map(|found| found.clone().within_limits()).collect();
            note(shared, pool, source, &found, seen_at).await
        })
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        Box::pin(async move {
            let Inner { shared, pool, .. } = &*self.inner;
            let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
            snapshot(shared, pool, "listing findings", async |link, now| {
                let after = query.after.map_or(-1, |number| number.0);
                let kind = query.kind.map(FindingKind::as_str);
                // One more than asked for tells whether there is a next page.
                let row_max = i64::try_from(limit + 1).unwrap_or(i64::MAX);
                let given: [&(dyn ToSql + Sync); 5] =
                    [&after, &query.source, &kind, &query.is_open, &row_max];
                let rows = link.query(&link.sql().findings.list, &given).await?;
                let mut findings: Vec<Finding> =
                    rows.iter().map(finding).collect::<Result<_, StoreError>>()?;
                let next = (findings.len() > limit).then(|| findings[limit - 1].number);
                findings.truncate(limit);
                Ok(FindingPage { findings, next, now })
            })
            .await
        })
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(async move {
            let Inner { shared, pool, .. } = &*self.inner;
            snapshot(shared, pool, "reading a finding", async |link, now| {
                let sql = &link.sql().findings;
                let rows = link.query(&sql.one, &[&number.0]).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let finding = finding(row)?;
                let rows = link.query(&sql.audits, &[&number.0]).await?;
                let audits: Vec<Audited> =
                    rows.iter().map(audited).collect::<Result<_, StoreError>>()?;
                Ok(Some(FindingStory { finding, audits, now }))
            })
            .await
        })
    }

    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        const DOING: &str = "assigning a finding";
        Box::pin(async move {
            self.writes(DOING)?;
            let Inner { shared, pool, .. } = &*self.inner;
            let owner = owner.map(Owner::as_str);
            let given: [&(dyn ToSql + Sync); 5] =
                [&number.0, &owner, &by.actor, &by.action, &by.reason];
            let assign = &shared.sql.findings.assign;
            let rows = write(shared, pool, DOING, assign, &given).await?;
            Ok(!rows.is_empty())
        })
    }

    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        const DOING: &str = "closing a finding";
        Box::pin(async move {
            self.writes(DOING)?;
            let Inner { shared, pool, .. } = &*self.inner;
            let (word, text) = (closing.as_str(), closing.text());
            let given: [&(dyn ToSql + Sync); 6] =
                [&number.0, &word, &text, &by.actor, &by.action, &by.reason];
            let close = &shared.sql.findings.close;
            let rows = write(shared, pool, DOING, close, &given).await?;
            Ok(!rows.is_empty())
        })
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        Box::pin(async move {
            let Inner { shared, pool, .. } = &*self.inner;
            let doing = "reading when a source was last compared";
            snapshot(shared, pool, doing, async |link, _now| {
                let rows = link.query(&link.sql().findings.last_run, &[&source]).await?;
                Ok(rows.first().map(run).transpose()?)
            })
            .await
        })
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        const DOING: &str = "writing down that a source was compared";
        Box::pin(async move {
            self.writes(DOING)?;
            let Inner { shared, pool, .. } = &*self.inner;
            let [at, until, again_from] = [run.at, run.until, run.again_from].map(At::Instant);
            let kept = whole_millis(FINDINGS_KEPT_FOR);
            let limit = i64::try_from(NOTED_MAX).unwrap_or(i64::MAX);
            let given: [&(dyn ToSql + Sync); 6] =
                [&source, &at, &until, &again_from, &kept, &limit];
            write(shared, pool, DOING, &shared.sql.findings.ran, &given).await.map(drop)
        })
    }
}
