//! What reconciliations found, in the same database.

mod rows;

use std::sync::Arc;

use firstwrite_core::findings::{
    Closing, FINDINGS_KEPT_FOR, Finding, FindingNumber, FindingPage, FindingQuery, FindingStory,
    Findings, NOTED_MAX, NewFinding, Noted, Owner, Run,
};
use firstwrite_core::{AuditEntry, BoxFuture, RecordId, StoreError, Timestamp};

use super::MysqlStore;
use super::batch::time_in;
use super::fault::corrupt;
use super::flight::{Flight, NOW, Value};
use super::listing::{ask_audits, audited, sql_count};
use super::pool::Pool;
use super::rows::{instant, integer};
use super::session::{Failure, Session, take};
use super::swap::put_audit;
use rows::{ask_same, audited_as, finding, select};

const NOTING: &str = "noting findings";

async fn note_once(
    session: &mut Session,
    source: &str,
    found: &[NewFinding],
    seen_at: Timestamp,
) -> Result<Vec<Noted>, Failure> {
    let (_, mut noted) = (session.begin(|_| ()).await?, Vec::with_capacity(found.len()));
    // One after the other: two of them may be about the same thing.
    for found in found {
        let mut known = look(session, source, found).await?;
        if known.is_none() {
            if let Some(number) = add(session, source, found, seen_at).await? {
                noted.push(Noted::New(number));
                continue;
            }
            // Another run has noted it since, and its commit was waited for.
            known = look(session, source, found).await?;
        }
        let known = known.ok_or_else(|| corrupt("a finding stands there and is not to be seen"))?;
        let again = known.seen_again(found, seen_at);
        see_again(session, again, found, seen_at).await?;
        noted.push(again);
    }
    let mut ending = Flight::new();
    ending.commit();
    session.fly(&ending).await?;
    Ok(noted)
}

/// What is known of the same thing.
async fn look(
    session: &mut Session,
    source: &str,
    found: &NewFinding,
) -> Result<Option<Finding>, Failure> {
    let mut looking = Flight::new();
    ask_same(&mut looking, source, found);
    let answers = session.fly(&looking).await?;
    Ok(answers[0].rows.first().map(finding).transpose()?)
}

/// Writes a finding where none is; none if there is one.
async fn add(
    session: &mut Session,
    source: &str,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Result<Option<FindingNumber>, Failure> {
    let seen_at = Value::Int(seen_at.as_millis());
    let mut flight = Flight::new();
    let written = flight.add(
        "INSERT INTO firstwrite_findings (source, kind, subject, detail, id, message, provider_id, \
         first_seen, last_seen, reopened_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) \
         ON DUPLICATE KEY UPDATE kind = firstwrite_findings.kind",
        &[
            Value::Text(source),
            Value::Text(found.kind.as_str()),
            Value::Bytes(found.subject.as_bytes()),
            Value::Text(&found.detail),
            record(found),
            Value::from(found.message.map(|message| message.0)),
            Value::from(found.provider_id.as_deref()),
            seen_at,
            seen_at,
        ],
    );
    let place = flight.add("SELECT LAST_INSERT_ID()", &[]);
    let answers = session.fly(&flight).await?;
    if answers[written].affected == 0 {
        return Ok(None);
    }
    let row = answers[place].rows.first().ok_or_else(|| corrupt("a finding has no number"))?;
    Ok(Some(FindingNumber(integer(row, 0)?)))
}

async fn see_again(
    session: &mut Session,
    noted: Noted,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Result<(), Failure> {
    let seen_at = Value::Int(seen_at.as_millis());
    let mut flight = Flight::new();
    let (number, is_reopened) = match noted {
        Noted::Reopened(number) => (number, true),
        Noted::New(number) | Noted::Known(number) => (number, false),
        Noted::Closed(number) => {
            flight.add(
                "UPDATE firstwrite_findings SET last_seen = GREATEST(last_seen, ?) \
                 WHERE finding = ?",
                &[seen_at, Value::Int(number.0)],
            );
            session.fly(&flight).await?;
            return Ok(());
        }
    };
    flight.add(
        "UPDATE firstwrite_findings SET detail = ?, id = ?, message = ?, provider_id = ?, \
         last_seen = GREATEST(last_seen, ?), reopened_count = reopened_count + ?, \
         closed_at = NULL, closed_by = NULL, closing = NULL, resolution = NULL WHERE finding = ?",
        &[
            Value::Text(&found.detail),
            record(found),
            Value::from(found.message.map(|message| message.0)),
            Value::from(found.provider_id.as_deref()),
            seen_at,
            Value::Int(is_reopened.into()),
            Value::Int(number.0),
        ],
    );
    session.fly(&flight).await?;
    Ok(())
}

fn record(found: &NewFinding) -> Value<'_> {
    found.record.as_ref().map_or(Value::Null, |id: &RecordId| Value::Bytes(id.as_bytes()))
}

/// Changes a finding if it is there and `condition` holds, with an audit entry in the same commit.
async fn change(
    session: &mut Session,
    number: FindingNumber,
    (condition, sql, values): (&str, &str, &[Value<'_>]),
    by: &AuditEntry,
) -> Result<bool, Failure> {
    let (_, answers) = session
        .begin(|flight| {
            flight.add(
                &format!("SELECT finding FROM firstwrite_findings WHERE finding = ? {condition} FOR UPDATE"),
                &[Value::Int(number.0)],
            );
        })
        .await?;
    let is_meant = !answers[0].rows.is_empty();
    let mut flight = Flight::new();
    if is_meant {
        flight.add(sql, values);
        flight.write(" WHERE finding = ?", &[Value::Int(number.0)]);
        put_audit(&mut flight, &audited_as(number), by);
    }
    flight.commit();
    session.fly(&flight).await?;
    Ok(is_meant)
}

async fn list(pool: &Arc<Pool>, query: &FindingQuery) -> Result<FindingPage, StoreError> {
    let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
    let mut flight = Flight::reading();
    let time = flight.add("SELECT @firstwrite_now", &[]);
    let place = select(&mut flight);
    let after = Value::Int(query.after.map_or(i64::MIN, |number| number.0));
    flight.write(" WHERE finding > ?", &[after]);
    if let Some(source) = &query.source {
        flight.write(" AND source = ?", &[Value::Text(source)]);
    }
    if let Some(kind) = query.kind {
        flight.write(" AND kind = ?", &[Value::Text(kind.as_str())]);
    }
    match query.is_open {
        Some(true) => flight.write(" AND closed_at IS NULL", &[]),
        Some(false) => flight.write(" AND closed_at IS NOT NULL", &[]),
        None => {}
    }
    // One more than asked for tells whether there is a next page.
    flight.write(" ORDER BY finding LIMIT ?", &[Value::Int(sql_count(limit + 1))]);
    let answers = pool.fly("listing findings", &flight).await?;
    let mut findings = answers[place].rows.iter().map(finding).collect::<Result<Vec<_>, _>>()?;
    let next = (findings.len() > limit).then(|| findings[limit - 1].number);
    findings.truncate(limit);
    Ok(FindingPage { findings, next, now: time_in(&answers[time])? })
}

async fn story(
    pool: &Arc<Pool>,
    number: FindingNumber,
) -> Result<Option<FindingStory>, StoreError> {
    let mut flight = Flight::reading();
    let time = flight.add("SELECT @firstwrite_now", &[]);
    let place = select(&mut flight);
    flight.write(" WHERE finding = ?", &[Value::Int(number.0)]);
    let audits = ask_audits(&mut flight, &audited_as(number));
    let answers = pool.fly("reading a finding", &flight).await?;
    let Some(row) = answers[place].rows.first() else { return Ok(None) };
    let (finding, audits) = (finding(row)?, audited(&answers[audits])?);
    Ok(Some(FindingStory { finding, audits, now: time_in(&answers[time])? }))
}

async fn last_run(pool: &Arc<Pool>, source: &str) -> Result<Option<Run>, StoreError> {
    let mut flight = Flight::new();
    let sql = "SELECT at, until, again_from FROM firstwrite_runs WHERE source = ?";
    flight.add(sql, &[Value::Text(source)]);
    let answers = pool.fly("reading when a source was last compared", &flight).await?;
    let Some(row) = answers[0].rows.first() else { return Ok(None) };
    let [at, until, again_from] = [instant(row, 0)?, instant(row, 1)?, instant(row, 2)?];
    Ok(Some(Run { at, until, again_from }))
}

async fn ran(pool: &Arc<Pool>, source: &str, run: &Run) -> Result<(), StoreError> {
    let [at, until, again_from] =
        [run.at, run.until, run.again_from].map(|at| Value::Int(at.as_millis()));
    let mut flight = Flight::transaction();
    flight.add(
        "INSERT INTO firstwrite_runs (source, at, until, again_from) VALUES (?, ?, ?, ?) \
         ON DUPLICATE KEY UPDATE at = ?, until = ?, again_from = ?",
        &[Value::Text(source), at, until, again_from, at, until, again_from],
    );
    let kept = i64::try_from(FINDINGS_KEPT_FOR.as_millis()).unwrap_or(i64::MAX);
    flight.add(
        "DELETE FROM firstwrite_findings WHERE closed_at <= ? - ? ORDER BY closed_at LIMIT ?",
        &[Value::Sql(NOW), Value::Int(kept), Value::Int(sql_count(NOTED_MAX))],
    );
    flight.commit();
    pool.fly("writing down that a source was compared", &flight).await.map(drop)
}

impl Findings for MysqlStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        let found: Vec<NewFinding> =
            found.iter().take(NOTED_MAX).map(|found| found.clone().within_limits()).collect();
        Box::pin(async move {
            self.writes(NOTING)?;
            take!(self.pool(), NOTING, |session| note_once(&mut session, source, &found, seen_at))
        })
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        Box::pin(list(self.pool(), query))
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(story(self.pool(), number))
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
            let values = [Value::from(owner.map(Owner::as_str))];
            let to = ("", "UPDATE firstwrite_findings SET owner = ?", &values[..]);
            take!(self.pool(), DOING, |session| change(&mut session, number, to, by))
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
            let values = [
                Value::Sql(NOW),
                Value::Text(&by.actor),
                Value::Text(closing.as_str()),
                Value::Text(closing.text()),
            ];
            let to = (
                "AND closed_at IS NULL",
                "UPDATE firstwrite_findings SET closed_at = ?, closed_by = ?, closing = ?, \
                 resolution = ?",
                &values[..],
            );
            take!(self.pool(), DOING, |session| change(&mut session, number, to, by))
        })
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        Box::pin(last_run(self.pool(), source))
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.writes("writing down that a source was compared")?;
            ran(self.pool(), source, run).await
        })
    }
}
