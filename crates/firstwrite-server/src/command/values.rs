//! Parsers of single values of the command line; each error says what is expected instead.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use firstwrite_core::findings::{FindingError, FindingKind, FindingNumber, Owner};
use firstwrite_core::outbox::{MessageNumber, MessageState};
use firstwrite_core::{
    Key, KeyError, Message, RecordId, StateKind, Tenant, TenantError, Timestamp,
};

use crate::config::Span;
use crate::outbox::Rate;

pub(super) fn tenant(text: &str) -> Result<Tenant, TenantError> {
    Tenant::new(text)
}

pub(super) fn key(text: &str) -> Result<Key, KeyError> {
    Key::new(text)
}

pub(super) fn state(text: &str) -> Result<StateKind, &'static str> {
    [StateKind::Reserved, StateKind::Completed, StateKind::Uncertain]
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or("a state is reserved, completed or uncertain")
}

pub(crate) fn record_id(text: &str) -> Result<RecordId, &'static str> {
    const EXPECTED: &str = "a record id is 32 hexadecimal digits";
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(EXPECTED);
    }
    let Ok(number) = u128::from_str_radix(text, 16) else { return Err(EXPECTED) };
    Ok(RecordId::from_bytes(number.to_be_bytes()))
}

pub(super) fn finding_number(text: &str) -> Result<FindingNumber, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.map(FindingNumber).ok_or("a finding is known by its number")
}

pub(super) fn finding_kind(text: &str) -> Result<FindingKind, &'static str> {
    let word = text.replace('-', "_");
    let known = |kind: &FindingKind| kind.as_str() == text || kind.as_str() == word;
    FindingKind::ALL
        .into_iter()
        .find(known)
        .ok_or("a kind is missing-here, missing-there, differs, duplicate or likely")
}

pub(super) fn owner(text: &str) -> Result<Owner, FindingError> {
    Owner::new(text)
}

/// A moment, such as `2026-01-31T12:00:00Z`.
pub(super) fn instant(text: &str) -> Result<Timestamp, &'static str> {
    let form = firstwrite::reconcile::TimeForm::Rfc3339;
    form.parse(text).ok_or("a time is written as 2026-01-31T12:00:00Z")
}

/// An audit entry is a sentence, not a file.
const AUDIT_CHARACTERS_MAX: usize = 500;

pub(super) fn reason(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > AUDIT_CHARACTERS_MAX {
        return Err("1 to 500 characters are needed, so that others can understand it later");
    }
    if text.chars().any(char::is_control) {
        return Err("control characters are not allowed; write one line");
    }
    Ok(text.to_owned())
}

/// The status of an answer that retries may get: one that ends the key.
pub(super) fn kept_status(text: &str) -> Result<StatusCode, &'static str> {
    const EXPECTED: &str = "a status is a number from 200 to 499, such as 201";
    let Ok(status) = text.parse::<StatusCode>() else { return Err(EXPECTED) };
    if !(200..600).contains(&status.as_u16()) {
        return Err(EXPECTED);
    }
    let ends_the_key = firstwrite_core::KeptStatuses::default().keeps(status);
    if ends_the_key {
        Ok(status)
    } else {
        Err("no retry is answered with that status; see `firstwrite help keys settle`")
    }
}

pub(super) fn destination(text: &str) -> Result<String, &'static str> {
    if !Message::is_name(text) {
        return Err("a destination is 1 to 64 visible characters without a colon");
    }
    Ok(text.to_owned())
}

pub(super) fn message_number(text: &str) -> Result<MessageNumber, &'static str> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.map(MessageNumber).ok_or("a message is known by its number, as `outbox list` shows it")
}

pub(super) fn message_state(text: &str) -> Result<MessageState, &'static str> {
    MessageState::ALL
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or("a state is waiting, sending, unknown, dead, delivered or dropped")
}

/// Parses a search text or an id: one line that is not empty.
pub(super) fn text(text: &str) -> Result<String, &'static str> {
    let is_fine = (1..=AUDIT_CHARACTERS_MAX).contains(&text.chars().count())
        && !text.chars().any(char::is_control);
    if is_fine {
        Ok(text.to_owned())
    } else {
        Err("1 to 500 characters without control characters are needed")
    }
}

pub(super) fn rate(text: &str) -> Result<Rate, &'static str> {
    text.parse()
}

/// A length of time with its unit.
pub(super) fn span(text: &str) -> Result<Duration, &'static str> {
    text.parse::<Span>().map(|span| span.0)
}

/// A header as it is written in a message: `name: value`.
pub(super) fn header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    const EXPECTED: &str = "a header is a name and a value, such as 'location: /payments/7'";
    let Some((name, value)) = text.split_once(':') else { return Err(EXPECTED) };
    let (Ok(name), Ok(value)) = (name.trim().parse(), value.trim().parse()) else {
        return Err(EXPECTED);
    };
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_id_is_read_as_it_is_shown() {
        let id = RecordId::from_bytes(*b"0123456789abcdef");
        assert_eq!(record_id(&id.to_string()), Ok(id));
        for wrong in ["", "12", &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(record_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reason_is_one_line_that_says_something() {
        assert_eq!(reason("  no charge "), Ok("no charge".to_owned()));
        for wrong in ["", "   ", "two\nlines", &"x".repeat(AUDIT_CHARACTERS_MAX + 1)] {
            assert!(reason(wrong).is_err());
        }
    }

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let (name, value) = header("Location:  /payments/7 ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("location", "/payments/7"));
        for wrong in ["", "location", ": x", "loc ation: x", "location: a\nb"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_status_that_ends_a_key_can_be_settled_on() {
        for right in ["200", "201", "303", "402"] {
            assert!(kept_status(right).is_ok(), "{right}");
        }
        for wrong in [
            "", "100", "401", "407", "408", "421", "425", "429", "431", "500", "503", "600", "999",
            "1000", "two",
        ] {
            assert!(kept_status(wrong).is_err(), "{wrong}");
        }
    }
}
