//! Reading findings out of rows.

use firstwrite_core::findings::{Closed, Closing, Finding, FindingNumber, NewFinding};
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{FindingKind, StoreError};
use mysql_async::Row;

use super::super::fault::corrupt;
use super::super::flight::{Flight, Value};
use super::super::rows::{
    bytes, id, instant, instant_or_null, integer, integer_or_null, is_null, owned_text,
    owned_text_or_null, text,
};

/// Under what name a finding's audit entries stand.
pub(super) fn audited_as(number: FindingNumber) -> Vec<u8> {
    format!("finding {number}").into_bytes()
}

/// Begins a look at findings.
pub(super) fn select(flight: &mut Flight) -> usize {
    flight.add(
        "SELECT finding, source, kind, subject, detail, id, message, provider_id, first_seen, \
         last_seen, reopened_count, owner, closed_at, closed_by, closing, resolution \
         FROM firstwrite_findings",
        &[],
    )
}

/// Adds a look at the finding about the same thing as `found`, which is locked by it.
pub(super) fn ask_same(flight: &mut Flight, source: &str, found: &NewFinding) {
    select(flight);
    flight.write(
        " WHERE source = ? AND kind = ? AND subject = ? FOR UPDATE",
        &[
            Value::Text(source),
            Value::Text(found.kind.as_str()),
            Value::Bytes(found.subject.as_bytes()),
        ],
    );
}

pub(super) fn finding(row: &Row) -> Result<Finding, StoreError> {
    let kind = FindingKind::from_word(text(row, 2)?);
    let subject = String::from_utf8(bytes(row, 3)?.to_vec());
    let found = NewFinding {
        kind: kind.ok_or_else(|| corrupt("an unknown kind of finding"))?,
        subject: subject.map_err(|_encoding| corrupt("a subject is not UTF-8"))?,
        detail: owned_text(row, 4)?,
        record: if is_null(row, 5) { None } else { Some(id(row, 5)?) },
        message: integer_or_null(row, 6)?.map(MessageNumber),
        provider_id: owned_text_or_null(row, 7)?,
    };
    Ok(Finding {
        number: FindingNumber(integer(row, 0)?),
        source: owned_text(row, 1)?,
        found,
        first_seen: instant(row, 8)?,
        last_seen: instant(row, 9)?,
        reopened_count: u32::try_from(integer(row, 10)?).unwrap_or(u32::MAX),
        owner: owned_text_or_null(row, 11)?,
        closed: closed(row)?,
    })
}

fn closed(row: &Row) -> Result<Option<Closed>, StoreError> {
    let Some(at) = instant_or_null(row, 12)? else { return Ok(None) };
    let closing = Closing::from_stored(text(row, 14)?, owned_text(row, 15)?);
    let closing = closing.ok_or_else(|| corrupt("an unknown way to close a finding"))?;
    Ok(Some(Closed { at, by: owned_text(row, 13)?, closing }))
}
