//! Tests that every value survives encoding, that common values are short, and that unreadable bytes do not
//! panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

fn headers(lines: &[(&str, &[u8])]) -> KeptHeaders {
    let line = |(name, value): &(&str, &[u8])| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
    };
    KeptHeaders::from_pairs(lines.iter().map(line).collect())
}

fn survives(outcome: &Outcome) -> usize {
    let written = encode_outcome(outcome);
    assert_eq!(decode_outcome(&written).as_ref(), Ok(outcome));
    written.len()
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

#[test]
fn every_status_survives() {
    for code in 100..=999 {
        survives(&Outcome::new(status(code), KeptHeaders::default(), Bytes::from_static(b"x")));
    }
}

#[test]
fn a_usual_json_answer_costs_four_bytes_over_its_body() {
    let json = headers(&[("content-type", b"application/json")]);
    assert_eq!(survives(&Outcome::new(status(201), json, Bytes::from(vec![b'x'; 270]))), 274);
}

#[test]
fn headers_keep_order_repetition_and_bytes() {
    let long = vec![b'v'; 20_000];
    let lines: Vec<(&str, &[u8])> = vec![
        ("link", b"<a>; rel=x, <b>"),
        ("content-type", b"application/json"),
        ("content-type", b"application/cbor"),
        ("link", b"<c>"),
        ("x-payment-id", b"\xff\xfe opaque"),
        ("etag", b""),
        ("x-long", &long),
    ];
    survives(&Outcome::new(status(200), headers(&lines), Bytes::from_static(&[0, 255, 0])));
    let many: Vec<(&str, &[u8])> = vec![("x-many", b"1"); 300];
    survives(&Outcome::new(status(200), headers(&many), Bytes::new()));
}

#[test]
fn an_empty_body_and_a_body_that_was_not_kept_stay_apart() {
    let empty = Outcome::new(status(204), KeptHeaders::default(), Bytes::new());
    let tombstone = Outcome::tombstone(status(204), KeptHeaders::default());
    survives(&empty);
    survives(&tombstone);
    assert_ne!(encode_outcome(&empty), encode_outcome(&tombstone));
}

#[test]
fn a_sealed_outcome_survives_and_is_no_plain_one() {
    let sealed = Outcome::sealed(status(201), Bytes::from_static(b"\x01secret"));
    let plain =
        Outcome::new(status(201), KeptHeaders::default(), Bytes::from_static(b"\x01secret"));
    assert_eq!((encode_outcome(&sealed)[0], encode_outcome(&plain)[0]), (0x14, 0x10));
    survives(&sealed);
    survives(&sealed.interim());
}

#[test]
fn that_an_outcome_is_interim_survives_and_is_one_bit() {
    let accepted = Outcome::new(status(202), KeptHeaders::default(), Bytes::from_static(b"{}"));
    let (plain, interim) = (encode_outcome(&accepted), encode_outcome(&accepted.clone().interim()));
    assert_eq!((plain[0], interim[0]), (0x10, 0x12));
    assert_eq!(plain[1..], interim[1..]);
    survives(&accepted.interim());
    survives(&Outcome::tombstone(status(202), KeptHeaders::default()).interim());
}

#[test]
fn answers_survive_and_damaged_ones_are_refused() {
    let long = Outcome::new(status(201), KeptHeaders::default(), Bytes::from(vec![b'x'; 20_000]));
    let json = headers(&[("content-type", b"application/json")]);
    let short = Outcome::new(status(402), json, Bytes::from_static(b"{}"));
    let gone = Outcome::tombstone(status(410), KeptHeaders::default());
    for (delivered, refused) in [(&long, &short), (&short, &long), (&gone, &gone)] {
        let answers = Answers { delivered: delivered.clone(), refused: refused.clone() };
        let written = encode_answers(&answers);
        assert_eq!(decode_answers(&written), Ok(answers));
        assert!(decode_answers(&written[..2]).is_err());
    }
    // Pinned: version, length, `201` with `{}`, `422` with nothing.
    let bytes = [1, 5, 0x10, 2, 0, b'{', b'}', 0x10, 16, 0];
    let answers = decode_answers(&bytes).unwrap();
    assert_eq!((answers.delivered.status, answers.refused.status), (status(201), status(422)));
    assert_eq!(encode_answers(&answers), bytes);
    for bytes in [&[][..], &[2, 0], &[1], &[1, 9, 0x10], &[1, 0, 0x10, 2, 0]] {
        assert!(decode_answers(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn damaged_outcomes_are_refused() {
    let other_version = Unreadable("an outcome was written by another version");
    assert_eq!(decode_outcome(&[0x21, 2, 0]), Err(other_version));
    assert_eq!(decode_outcome(&[0x00, 2, 0]), Err(other_version));
    let short = Err(Unreadable("an outcome ends too early"));
    for bytes in [&[][..], &[0x10], &[0x10, 0, 1], &[0x10, 2], &[0x10, 2, 1], &[0x10, 2, 1, 1, 9]] {
        assert_eq!(decode_outcome(bytes), short, "{bytes:?}");
    }
    for bytes in [
        &[0x19, 2, 0][..],                        // an unknown form
        &[0x18, 2, 0, b'x'],                      // a note of a release, with a body
        &[0x15, 2, 0],                            // sealed, and a tombstone
        &[0x14, 2, 1, 64],                        // sealed, and a header outside
        &[0x11, 2, 0, b'x'],                      // a tombstone with a body
        &[0x10, 17, 0],                           // an unknown status code
        &[0x10, 0, 0, 42, 0],                     // no status
        &[0x10, 2, 1, 6, 0],                      // an unknown name
        &[0x10, 2, 1, 69],                        // an unknown line
        &[0x10, 2, 1, 0, 1, b' ', 0],             // no header name
        &[0x10, 2, 1, 1, 1, b'\n'],               // no header value
        &[0x10, 2, 0xff, 0xff, 0xff, 0xff, 0xff], // an endless length
    ] {
        assert!(decode_outcome(bytes).is_err(), "{bytes:?}");
    }
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let name = select(vec!["content-type", "location", "x-other", "etag", "link", "x-id"]);
    let value = select(vec![&b"application/json"[..], b"/payments/1", b"", b"\xe9t\xe9"]);
    let body = vec(any::<u8>(), 0..400);
    (100..=999_u16, vec((name, value), 0..6), body, any::<bool>()).prop_map(
        |(code, lines, body, is_interim)| {
            let outcome = Outcome::new(status(code), headers(&lines), body.into());
            Outcome { is_interim, ..outcome }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_outcome_survives(outcome in any_outcome()) {
        survives(&outcome);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_as_an_outcome(
        outcome in any_outcome(),
        (at, byte, length) in any::<(Index, u8, Index)>(),
    ) {
        let mut damaged = encode_outcome(&outcome);
        let at = at.index(damaged.len());
        damaged[at] = byte;
        damaged.truncate(length.index(damaged.len() + 1));
        if let Ok(outcome) = decode_outcome(&damaged) {
            survives(&outcome);
        }
    }
}
