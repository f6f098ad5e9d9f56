//! Questions and what their answers say.

use bytes::Bytes;
use http::HeaderMap;

use super::super::exchange::Unread;
use super::*;

const AT: Timestamp = Timestamp::from_millis(1_000_000_000);

fn answer(status: u16, body: &str) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: Ok(Bytes::from(body.to_owned())),
    }
}

fn one() -> Probe {
    let settings = ProbeSettings::one("https://a.test/{key}", "/id".parse().unwrap());
    Probe::new(settings.absent_on(&[StatusCode::NOT_FOUND])).unwrap()
}

fn list() -> Probe {
    let [list, key, id] = ["/data", "/key", "/id"].map(|pointer| pointer.parse().unwrap());
    let settings = ProbeSettings::list("https://a.test/?q={key}", list, key, id);
    Probe::new(settings.empty_is_absent()).unwrap()
}

fn happened(id: &str) -> Probed {
    Probed::Happened(Receipt { provider_id: Some(id.to_owned()) })
}

#[test]
fn one_thing_is_there_or_not() {
    assert_eq!(one().read(&answer(200, r#"{"id":"ch_1"}"#), "k", AT..=AT), happened("ch_1"));
    assert_eq!(one().read(&answer(404, ""), "k", AT..=AT), Probed::NotHappened);
    for (status, body) in
        [(200, "{}"), (200, "<html>"), (201, r#"{"id":"ch_1"}"#), (303, ""), (410, ""), (500, "")]
    {
        assert!(
            matches!(one().read(&answer(status, body), "k", AT..=AT), Probed::Silent(_)),
            "{status} {body}"
        );
    }
}

/// A probe with a wrong path gets 404 for everything, and a login or a router redirects it.
#[test]
fn a_status_that_is_not_stated_says_nothing() {
    let settings = ProbeSettings::one("https://a.test/{key}", "/id".parse().unwrap());
    let probe = Probe::new(settings).unwrap();
    for status in [204, 303, 410, 429, 500] {
        let probed = probe.read(&answer(status, ""), "k", AT..=AT);
        assert!(matches!(probed, Probed::Silent(_)), "{status}");
    }
    for status in [302, 401, 403, 404, 407] {
        let probed = probe.read(&answer(status, ""), "k", AT..=AT);
        assert!(matches!(probed, Probed::NotThere(_)), "{status}");
    }
    assert!(matches!(list().read(&answer(404, ""), "k", AT..=AT), Probed::NotThere(_)));
    assert_eq!(probe.read(&answer(200, r#"{"id":"ch_1"}"#), "k", AT..=AT), happened("ch_1"));
}

#[test]
fn a_list_is_empty_or_has_the_key_once() {
    let ours = r#"{"data":[{"id":"ch_0","key":"other"},{"id":"ch_1","key":"k"}]}"#;
    assert_eq!(list().read(&answer(200, ours), "k", AT..=AT), happened("ch_1"));
    assert_eq!(list().read(&answer(200, r#"{"data":[]}"#), "k", AT..=AT), Probed::NotHappened);
    for (status, body) in [
        (200, "{}"),
        (200, r#"{"data":null}"#),
        (200, r#"{"data":{}}"#),
        (200, r#"{"data":[{}]}"#),
        (200, r#"{"data":[{"id":"ch_1"}]}"#),
        (200, r#"{"data":[{"id":"ch_1","key":"other"}]}"#),
        (200, r#"{"data":[{"id":"ch_1","key":"k"},{"id":"ch_2","key":"k"}]}"#),
        (200, r#"{"data":[{"key":"k"}]}"#),
        (200, "[]"),
        (500, r#"{"data":[]}"#),
    ] {
        let probed = list().read(&answer(status, body), "k", AT..=AT);
        assert!(matches!(probed, Probed::Silent(_)), "{status} {body}");
    }
}

#[test]
fn a_body_that_was_not_read_says_nothing() {
    for unread in [Unread::TooLong, Unread::BrokenOff, Unread::Late] {
        let answer = Answer { body: Err(unread), ..answer(200, "") };
        assert!(matches!(list().read(&answer, "k", AT..=AT), Probed::Silent(_)));
        assert!(matches!(one().read(&answer, "k", AT..=AT), Probed::Silent(_)));
    }
}

#[test]
fn the_key_stands_encoded_in_path_or_query() {
    let url = list().url("a/b?c&d=e:charge:ef56").unwrap();
    assert_eq!(url.to_string(), "https://a.test/?q=a%2Fb%3Fc%26d%3De%3Acharge%3Aef56");
    for template in [
        "https://a.test/",
        "https://{key}.test/",
        "https://{key}.test/{key}",
        "https://a.test/#{key}",
        "ftp://a.test/{key}",
        "/{key}",
    ] {
        let settings = ProbeSettings::one(template, "/id".parse().unwrap());
        assert!(Probe::new(settings).is_err(), "{template}");
    }
}

#[test]
fn the_url_is_not_shown() {
    let settings = ProbeSettings::one("https://a.test/secret/{key}", "/id".parse().unwrap());
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn places_are_apart_and_the_list_is_not_harmless() {
    let place = |text: &str| text.parse::<Pointer>().unwrap();
    let form = || ProbeForm {
        list: Some(place("/a/data")),
        key: Some(place("/key")),
        at: Some(place("/at")),
        ..ProbeForm::default()
    };
    for (form, id) in [
        (form(), "/key"),
        (form(), "/at"),
        (ProbeForm { at: Some(place("/key")), ..form() }, "/id"),
        (ProbeForm { harmless: vec![place("/a/data")], ..form() }, "/id"),
        (ProbeForm { harmless: vec![place("/a")], ..form() }, "/id"),
    ] {
        let settings = ProbeSettings::formed("https://a.test/{key}", form, place(id));
        assert!(Probe::new(settings.clone()).is_err(), "{settings:?}");
    }
    let fine = ProbeForm { harmless: vec![place("/a/datum")], ..form() };
    let settings = ProbeSettings::formed("https://a.test/{key}", fine, place("/id"));
    assert!(Probe::new(settings).is_ok());
}
