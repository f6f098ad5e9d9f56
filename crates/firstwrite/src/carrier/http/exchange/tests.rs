//! Answers and what they say.

use bytes::Bytes;
use serde_json::json;

use super::super::statuses::SetMeanings;
use super::*;

/// Wed, 21 Oct 2015 07:28:00 GMT, as RFC 9110 likes to have it.
const DATE: Timestamp = Timestamp::from_millis(1_445_412_480_000);

fn reading(provider_id: Option<&str>) -> Reading {
    Reading {
        meanings: Meanings::new(&SetMeanings::default()).unwrap(),
        provider_id: provider_id.map(|pointer| pointer.parse().unwrap()),
        retry_after_max: Duration::from_mins(1),
    }
}

fn answer(status: u16, body: Result<&str, Unread>) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: body.map(|text| Bytes::from(text.to_owned())),
    }
}

fn asked(status: u16, retry_after: &str) -> Option<Duration> {
    let mut answer = answer(status, Ok(""));
    answer.headers.insert(header::RETRY_AFTER, retry_after.parse().unwrap());
    let now = Timestamp::from_millis(DATE.as_millis() - 30_000);
    reading(None).delivery(&answer, now).retry_after
}

#[test]
fn a_success_is_believed_only_with_its_id() {
    for (body, id, reason) in [
        (Ok(r#"{"data":{"id":"ch_1"}}"#), Some("ch_1"), ""),
        (Ok(r#"{"data":{"id":42}}"#), Some("42"), ""),
        (Ok(r#"{"data":{"id":-1}}"#), Some("-1"), ""),
        (Ok(r#"{"data":{"id":1.5}}"#), None, "has no id at \"/data/id\""),
        (Ok(r#"{"data":{"id":""}}"#), None, "has no id"),
        (Ok(r#"{"data":{"id":"a\nb"}}"#), None, "has no id"),
        (Ok(r#"{"data":{"id":null}}"#), None, "has no id"),
        (Ok(r#"{"data":{}}"#), None, "has no id"),
        (Ok("<html>Log in to the hotel's network</html>"), None, "not JSON"),
        (Ok(""), None, "not JSON"),
        (Err(Unread::TooLong), None, "longer than"),
        (Err(Unread::BrokenOff), None, "broke off"),
        (Err(Unread::Late), None, "in time"),
    ] {
        let delivery = reading(Some("/data/id")).delivery(&answer(200, body), DATE);
        match id {
            Some(id) => {
                let receipt = Receipt { provider_id: Some(id.to_owned()) };
                assert_eq!(delivery.ending, Ending::Delivered(receipt));
            }
            None => assert_eq!(delivery.ending, Ending::Unknown),
        }
        assert!(delivery.detail.contains(reason), "{}", delivery.detail);
        assert_eq!(delivery.status, Some(200));
    }
}

#[test]
fn without_an_id_to_look_for_the_status_says_it_all() {
    for body in [Ok("anything"), Err(Unread::TooLong), Err(Unread::BrokenOff), Err(Unread::Late)] {
        let delivery = reading(None).delivery(&answer(204, body), DATE);
        assert_eq!(delivery.ending, Ending::Delivered(Receipt::default()));
    }
}

#[test]
fn an_id_is_short() {
    let pointer = "/id".parse().unwrap();
    assert!(id_at(&json!({"id": "x".repeat(255)}), &pointer).is_some());
    assert!(id_at(&json!({"id": "x".repeat(256)}), &pointer).is_none());
}

#[test]
fn the_time_asked_for_is_read_and_capped() {
    for (value, expected) in [
        ("5", Some(5)),
        ("0", Some(0)),
        ("3600", Some(60)),
        ("99999999999999999999999", Some(60)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", Some(30)),
        ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
        ("Fri, 21 Oct 2050 07:27:00 GMT", Some(60)),
        ("-1", None),
        ("soon", None),
        ("", None),
    ] {
        assert_eq!(asked(429, value), expected.map(Duration::from_secs), "{value}");
    }
    assert!(asked(503, "5").is_some() && asked(202, "5").is_none() && asked(422, "5").is_none());
}

#[test]
fn too_much_is_told_apart_from_other_trouble() {
    for (status, is_overloaded) in
        [(429, true), (503, true), (500, false), (425, false), (200, false)]
    {
        let delivery = reading(None).delivery(&answer(status, Ok("")), DATE);
        assert_eq!(delivery.is_overloaded, is_overloaded, "{status}");
    }
}
