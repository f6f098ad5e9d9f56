//! Reading findings out of rows.

use firstwrite_core::findings::{
    Closed, Closing, Finding, FindingNumber, FindingQuery, NewFinding,
};
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{AuditEntry, Audited, FindingKind, RecordId, StoreError, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row, params};

use super::super::fault::{corrupt, definite};
use super::super::rows::{blob, column, integer, text};

const DOING: &str = "reading findings";

/// Columns as in [`finding`].
const SELECT: &str = "SELECT finding, source, kind, subject, detail, id, message, provider_id,
    first_seen, last_seen, reopened_count, owner, closed_at, closed_by, closing, resolution
    FROM firstwrite_findings";

/// Under what name a finding's audit entries stand.
pub(super) fn audited_as(number: FindingNumber) -> Vec<u8> {
    format!("finding {number}").into_bytes()
}

/// The finding with this number.
pub(super) fn find(
    connection: &Connection,
    number: FindingNumber,
) -> Result<Option<Finding>, StoreError> {
    read(connection, "WHERE finding = ?1", [number.0]).map(|mut all| all.pop())
}

/// The finding about the same thing as `found`.
pub(super) fn find_same(
    connection: &Connection,
    source: &str,
    found: &NewFinding,
) -> Result<Option<Finding>, StoreError> {
    let given = params![source, found.kind.as_str(), found.subject];
    read(connection, "WHERE source = ?1 AND kind = ?2 AND subject = ?3", given)
        .map(|mut all| all.pop())
}

/// Up to `limit` findings.
pub(super) fn list(
    connection: &Connection,
    query: &FindingQuery,
    limit: usize,
) -> Result<Vec<Finding>, StoreError> {
    let given = params![
        query.after.map_or(i64::MIN, |number| number.0),
        query.source,
        query.kind.map(FindingKind::as_str),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ];
    // Said in so many words, so that the few that are open have an index of their own.
    let which = match query.is_open {
        Some(true) => "AND closed_at IS NULL",
        Some(false) => "AND closed_at IS NOT NULL",
        None => "",
    };
    let rest = format!(
        "WHERE finding > ?1 AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR kind = ?3) {which}
         ORDER BY finding LIMIT ?4"
    );
    read(connection, &rest, given)
}

/// What people did to a finding.
pub(super) fn audits(
    connection: &Connection,
    number: FindingNumber,
) -> Result<Vec<Audited>, StoreError> {
    let sql = "SELECT at, actor, action, reason FROM firstwrite_audit
               WHERE id = ?1 ORDER BY entry";
    let read = |row: &Row<'_>| {
        let (actor, action, reason) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let entry = AuditEntry { actor, action, reason };
        Ok(Audited { at: Timestamp::from_millis(row.get(0)?), entry })
    };
    connection
        .prepare_cached(sql)
        .and_then(|mut query| query.query_map([audited_as(number)], read)?.collect())
        .map_err(definite("reading audit entries"))
}

fn read(
    connection: &Connection,
    rest: &str,
    given: impl Params,
) -> Result<Vec<Finding>, StoreError> {
    let failed = definite(DOING);
    let mut select = connection.prepare_cached(&format!("{SELECT} {rest}")).map_err(&failed)?;
    let mut rows = select.query(given).map_err(&failed)?;
    let mut findings = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        findings.push(finding(row)?);
    }
    Ok(findings)
}

fn finding(row: &Row<'_>) -> Result<Finding, StoreError> {
    let record = optional(row, 5, |row, index| {
        let id = blob(row, index)?.try_into().map(RecordId::from_bytes);
        id.map_err(|_length| corrupt("a record id has 16 bytes"))
    })?;
    let found = NewFinding {
        kind: super::kind(text(row, 2)?)?,
        subject: text(row, 3)?.to_owned(),
        detail: text(row, 4)?.to_owned(),
        record,
        message: optional(row, 6, integer)?.map(MessageNumber),
        provider_id: optional(row, 7, |row, index| text(row, index).map(str::to_owned))?,
    };
    Ok(Finding {
        number: FindingNumber(integer(row, 0)?),
        source: text(row, 1)?.to_owned(),
        found,
        first_seen: Timestamp::from_millis(integer(row, 8)?),
        last_seen: Timestamp::from_millis(integer(row, 9)?),
        reopened_count: u32::try_from(integer(row, 10)?).unwrap_or(u32::MAX),
        owner: optional(row, 11, |row, index| text(row, index).map(str::to_owned))?,
        closed: optional(row, 12, closed)?,
    })
}

fn closed(row: &Row<'_>, at: usize) -> Result<Closed, StoreError> {
    let closing = Closing::from_stored(text(row, 14)?, text(row, 15)?.to_owned());
    Ok(Closed {
        at: Timestamp::from_millis(integer(row, at)?),
        by: text(row, 13)?.to_owned(),
        closing: closing.ok_or_else(|| corrupt("an unknown way to close a finding"))?,
    })
}

fn optional<T>(
    row: &Row<'_>,
    index: usize,
    read: impl Fn(&Row<'_>, usize) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    if column(row, index)? == ValueRef::Null { Ok(None) } else { read(row, index).map(Some) }
}
