//! Entries survive being written, and a spoilt one is never taken for another.

use http::{HeaderMap, StatusCode};

use super::*;
use crate::end::{Answer, Cause, Done, Refused, Unresolved};

/// Turns every bit around, and says for whom.
struct Mirror;

impl Seal for Mirror {
    fn seal(&self, intent: &str, body: &[u8]) -> Result<Vec<u8>, BoxError> {
        let mut sealed = intent.as_bytes().to_vec();
        sealed.extend(body.iter().map(|byte| !byte));
        Ok(sealed)
    }

    fn open(&self, intent: &str, sealed: &[u8]) -> Result<Vec<u8>, BoxError> {
        let body = sealed.strip_prefix(intent.as_bytes()).ok_or("sealed for another intent")?;
        Ok(body.iter().map(|byte| !byte).collect())
    }
}

fn answer(body: Option<&'static str>) -> Answer {
    let mut headers = HeaderMap::new();
    headers.append("x-odd", HeaderValue::from_bytes(b"\xff \xe4").unwrap());
    headers.append("x-odd", HeaderValue::from_static("twice"));
    Answer { status: StatusCode::CREATED, headers, body: body.map(Bytes::from) }
}

fn entry(end: Option<End>) -> Entry {
    Entry {
        name: "checkout/größe".to_owned(),
        revision: 7,
        key: Key::from_random([3; 16]),
        request: Request {
            method: http::Method::POST,
            url: "http://127.0.0.1:1/a?b=c".parse().unwrap(),
            headers: vec![("content-type".parse().unwrap(), HeaderValue::from_static("a/b"))],
            body: Bytes::from("{\n}"),
        },
        opened_at: Timestamp::from_millis(-5),
        attempts: 2,
        doubt: true,
        first_attempt_at: Some(Timestamp::from_millis(1)),
        resumed_at: None,
        latest_at: Some(Timestamp::from_millis(6)),
        spelling: Some(Spelling { dialect: Dialect::Stripe, header: "x-key".parse().unwrap() }),
        not_before: Some(Timestamp::from_millis(9)),
        waits_for: Duration::from_millis(8),
        expires_at: None,
        shows_status: true,
        end,
        place: Some(Place { lane: "l".into(), number: 4, is_applied: true, is_settled: false }),
    }
}

fn entries() -> Vec<Entry> {
    let unresolved = |answer| Unresolved {
        answer,
        code: Some("answer-lost".to_owned()),
        safe_new_key: false,
        cause: Cause::ClockSetBack,
    };
    let refused = Refused {
        answer: Some(answer(None)),
        code: None,
        safe_new_key: true,
        replayed: true,
        cause: Cause::KeyLife,
    };
    let ends = [
        None,
        Some(End::Done(Done { answer: answer(Some("paid\n")), replayed: true })),
        Some(End::Done(Done { answer: answer(None), replayed: false })),
        Some(End::Refused(refused)),
        Some(End::Unknown(unresolved(None))),
        Some(End::Expired(unresolved(Some(answer(Some("")))))),
    ];
    ends.into_iter().map(entry).collect()
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    for entry in entries() {
        let stored = encode(&entry, None).unwrap();
        assert_eq!(decode(&stored, None).unwrap(), entry);
        let sealed = encode(&entry, Some(&Mirror)).unwrap();
        assert_eq!(decode(&sealed, Some(&Mirror)).unwrap(), entry);
        // Written before the application began to seal.
        assert_eq!(decode(&stored, Some(&Mirror)).unwrap(), entry);
    }
}

#[test]
fn sealed_bodies_are_not_there_in_the_clear_and_open_for_their_own_intent_alone() {
    let entry = entry(Some(End::Done(Done { answer: answer(Some("secret")), replayed: false })));
    let sealed = encode(&entry, Some(&Mirror)).unwrap();
    assert!(!sealed.document.windows(6).any(|part| part == b"secret"));
    assert!(matches!(decode(&sealed, None), Err(Unreadable::Sealed(_))));
}

#[test]
fn a_byte_that_is_missing_or_another_is_noticed() {
    for entry in entries() {
        let stored = encode(&entry, None).unwrap();
        for at in 0..stored.document.len() {
            let mut bytes = stored.document.to_vec();
            bytes[at] ^= 4;
            let spoilt = Stored { document: bytes.into(), ..stored.clone() };
            assert!(decode(&spoilt, None).is_err(), "byte {at}");
            let short = Stored { document: stored.document.slice(..at), ..stored.clone() };
            assert!(matches!(decode(&short, None), Err(Unreadable::Damaged(_))), "length {at}");
        }
        let other = Stored { name: "other".to_owned(), ..stored.clone() };
        assert!(matches!(decode(&other, None), Err(Unreadable::Damaged(_))));
        let other = Stored { revision: 8, ..stored };
        assert!(matches!(decode(&other, None), Err(Unreadable::Damaged(_))));
    }
}

#[test]
fn a_later_version_is_named_and_not_called_damaged() {
    let document = Bytes::from("firstwrite-intent 2 abc\n{}\n");
    let later = Stored { name: "a".to_owned(), revision: 1, document };
    assert!(matches!(decode(&later, None), Err(Unreadable::Later)));
}

#[test]
fn the_lane_of_an_entry_that_cannot_be_read_is_found_where_it_still_stands() {
    let stored = encode(&entry(None), None).unwrap();
    let mut bytes = stored.document.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let spoilt = Stored { document: bytes.into(), ..stored.clone() };
    assert!(matches!(decode(&spoilt, None), Err(Unreadable::Damaged(_))));
    assert_eq!(lane_of(&spoilt).as_deref(), Some("l"));
    let cut = Stored { document: stored.document.slice(..99), ..stored };
    assert_eq!(lane_of(&cut), None);
}
