//! Findings in the same file.

mod rows;

use firstwrite_core::findings::{
    Closing, FINDINGS_KEPT_FOR, FindingNumber, FindingPage, FindingQuery, FindingStory, Findings,
    NOTED_MAX, NewFinding, Noted, Owner, Run,
};
use firstwrite_core::{AuditEntry, BoxFuture, FindingKind, RecordId, StoreError, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::SqliteStore;
use super::fault::{Failure, definite};
use super::session::Session;
use rows::{audited_as, audits, find, find_same, list};

const NOTING: &str = "noting findings";

impl Session {
    fn note(
        &self,
        source: &str,
        found: &[NewFinding],
        seen_at: Timestamp,
    ) -> Result<Vec<Noted>, Failure> {
        let mut noted = Vec::with_capacity(found.len());
        for found in found {
            let known = find_same(&self.connection, source, found).map_err(half_written)?;
            noted.push(match known {
                Some(known) => {
                    let noted = known.seen_again(found, seen_at);
                    self.see_again(noted, found, seen_at).map_err(Failure::batch(NOTING))?;
                    noted
                }
                None => self.add(source, found, seen_at).map_err(Failure::batch(NOTING))?,
            });
        }
        Ok(noted)
    }

    fn add(&self, source: &str, found: &NewFinding, seen_at: Timestamp) -> rusqlite::Result<Noted> {
        let sql = "INSERT INTO firstwrite_findings
                       (source, kind, subject, detail, id, message, provider_id,
                        first_seen, last_seen, reopened_count)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, 0)";
        let number = self.connection.prepare_cached(sql)?.insert(params![
            source,
            found.kind.as_str(),
            found.subject,
            found.detail,
            found.record.as_ref().map(RecordId::as_bytes),
            found.message.map(|message| message.0),
            found.provider_id,
            seen_at.as_millis(),
        ])?;
        Ok(Noted::New(FindingNumber(number)))
    }

    fn see_again(
        &self,
        noted: Noted,
        found: &NewFinding,
        seen_at: Timestamp,
    ) -> rusqlite::Result<()> {
        let (number, is_reopened) = match noted {
            Noted::Reopened(number) => (number, true),
            Noted::New(number) | Noted::Known(number) => (number, false),
            Noted::Closed(number) => {
                let sql = "UPDATE firstwrite_findings SET last_seen = max(last_seen, ?2)
                           WHERE finding = ?1";
                let given = params![number.0, seen_at.as_millis()];
                return self.connection.prepare_cached(sql)?.execute(given).map(drop);
            }
        };
        let sql = "UPDATE firstwrite_findings
                   SET detail = ?2, id = ?3, message = ?4, provider_id = ?5,
                       last_seen = max(last_seen, ?6), reopened_count = reopened_count + ?7,
                       closed_at = NULL, closed_by = NULL, closing = NULL, resolution = NULL
                   WHERE finding = ?1";
        let given = params![
            number.0,
            found.detail,
            found.record.as_ref().map(RecordId::as_bytes),
            found.message.map(|message| message.0),
            found.provider_id,
            seen_at.as_millis(),
            is_reopened,
        ];
        self.connection.prepare_cached(sql)?.execute(given).map(drop)
    }

    fn assign(
        &self,
        number: FindingNumber,
        owner: Option<&Owner>,
        by: &AuditEntry,
    ) -> rusqlite::Result<bool> {
        let sql = "UPDATE firstwrite_findings SET owner = ?2 WHERE finding = ?1";
        let given = params![number.0, owner.map(Owner::as_str)];
        let is_there = self.connection.prepare_cached(sql)?.execute(given)? > 0;
        if is_there {
            self.put_audit(&audited_as(number), by, self.now())?;
        }
        Ok(is_there)
    }

    fn close_finding(
        &self,
        number: FindingNumber,
        closing: &Closing,
        by: &AuditEntry,
    ) -> rusqlite::Result<bool> {
        let now = self.now();
        let sql = "UPDATE firstwrite_findings
                   SET closed_at = ?2, closed_by = ?3, closing = ?4, resolution = ?5
                   WHERE finding = ?1 AND closed_at IS NULL";
        let given = params![number.0, now.as_millis(), by.actor, closing.as_str(), closing.text()];
        let is_open = self.connection.prepare_cached(sql)?.execute(given)? > 0;
        if is_open {
            self.put_audit(&audited_as(number), by, now)?;
        }
        Ok(is_open)
    }

    fn ran(&self, source: &str, run: &Run) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_runs (source, at, until, again_from)
                   VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT DO UPDATE SET at = excluded.at, until = excluded.until,
                                             again_from = excluded.again_from";
        let Run { at, until, again_from } = run;
        let given = params![source, at.as_millis(), until.as_millis(), again_from.as_millis()];
        self.connection.prepare_cached(sql)?.execute(given)?;
        let kept = i64::try_from(FINDINGS_KEPT_FOR.as_millis()).unwrap_or(i64::MAX);
        let sql = "DELETE FROM firstwrite_findings WHERE finding IN
                       (SELECT finding FROM firstwrite_findings WHERE closed_at <= ?1
                        ORDER BY closed_at LIMIT ?2)";
        let limit = i64::try_from(NOTED_MAX).unwrap_or(i64::MAX);
        let given = params![self.clock.counted_now().as_millis().saturating_sub(kept), limit];
        self.connection.prepare_cached(sql)?.execute(given).map(drop)
    }
}

/// A finding that cannot be read ends the commit in which others were noted.
fn half_written(error: StoreError) -> Failure {
    Failure::Batch(error)
}

impl Findings for SqliteStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        let source = source.to_owned();
        let found: Vec<NewFinding> =
            found.iter().take(NOTED_MAX).map(|found| found.clone().within_limits()).collect();
        Box::pin(self.command(NOTING, move |session| session.note(&source, &found, seen_at)))
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        let query = query.clone();
        Box::pin(self.look("listing findings", move |view| {
            let now = view.now();
            let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
            // One more than asked for tells whether there is a next page.
            let mut findings = list(&view.connection, &query, limit + 1)?;
            let next = (findings.len() > limit).then(|| findings[limit - 1].number);
            findings.truncate(limit);
            Ok(FindingPage { findings, next, now })
        }))
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(self.look("reading a finding", move |view| {
            let now = view.now();
            let Some(finding) = find(&view.connection, number)? else { return Ok(None) };
            let audits = audits(&view.connection, number)?;
            Ok(Some(FindingStory { finding, audits, now }))
        }))
    }

    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        const DOING: &str = "assigning a finding";
        let (owner, by) = (owner.cloned(), by.clone());
        Box::pin(self.command(DOING, move |session| {
            session.assign(number, owner.as_ref(), &by).map_err(Failure::batch(DOING))
        }))
    }

    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        const DOING: &str = "closing a finding";
        let (closing, by) = (closing.clone(), by.clone());
        Box::pin(self.command(DOING, move |session| {
            session.close_finding(number, &closing, &by).map_err(Failure::batch(DOING))
        }))
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        const DOING: &str = "reading when a source was last compared";
        let source = source.to_owned();
        Box::pin(self.look(DOING, move |view| {
            let sql = "SELECT at, until, again_from FROM firstwrite_runs WHERE source = ?1";
            let read = |row: &rusqlite::Row<'_>| {
                let [at, until, again_from] = [row.get(0)?, row.get(1)?, row.get(2)?];
                let [at, until, again_from] = [at, until, again_from].map(Timestamp::from_millis);
                Ok(Run { at, until, again_from })
            };
            view.connection
                .prepare_cached(sql)
                .and_then(|mut query| query.query_row([&source], read).optional())
                .map_err(definite(DOING))
        }))
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        const DOING: &str = "writing down that a source was compared";
        let (source, run) = (source.to_owned(), *run);
        Box::pin(self.command(DOING, move |session| {
            session.ran(&source, &run).map_err(Failure::batch(DOING))
        }))
    }
}

/// What a kind is called in the table, or what is wrong.
fn kind(word: &str) -> Result<FindingKind, StoreError> {
    FindingKind::from_word(word).ok_or_else(|| super::fault::corrupt("an unknown kind of finding"))
}
