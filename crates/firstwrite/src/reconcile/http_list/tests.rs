//! URLs and pages; the real thing is asked in `tests/reconcile`.

use firstwrite_core::Timestamp;

use super::*;

const URL: &str = "http://127.0.0.1:1/v1/payments?from={from}&until={until}&after={cursor}";

fn items() -> HttpItems {
    HttpItems {
        key: Some("/key".parse().unwrap()),
        amount: Some("/amount".parse().unwrap()),
        currency: Some("/currency".parse().unwrap()),
        ..HttpItems::new(
            "/data".parse().unwrap(),
            "/id".parse().unwrap(),
            "/at".parse().unwrap(),
            Made::All,
        )
    }
}

fn next() -> Paging {
    Paging::Next("/next".parse().unwrap())
}

fn list() -> HttpList {
    HttpList::new(URL, items(), next())
}

fn read(list: HttpList, body: &'static str) -> Result<SourcePage, SourceError> {
    read_bytes(list, body)
}

fn read_bytes(list: HttpList, body: impl Into<Bytes>) -> Result<SourcePage, SourceError> {
    list.build().unwrap().read(&HeaderMap::new(), &body.into())
}

#[test]
fn the_window_and_the_cursor_are_put_into_the_url() {
    let source = list().build().unwrap();
    let window = Window { from: Timestamp::EPOCH, until: Timestamp::from_millis(1500) };
    let url = |cursor| source.url(window, cursor).unwrap().to_string();
    let first = "http://127.0.0.1:1/v1/payments?from=1970-01-01T00%3A00%3A00.000Z\
                 &until=1970-01-01T00%3A00%3A01.500Z";
    assert_eq!(url(None), first);
    assert_eq!(url(Some("a&b={from}")), format!("{first}&after=a%26b%3D%7Bfrom%7D"));
}

#[test]
fn items_are_read_and_amounts_digit_for_digit() {
    let page = read(
        list(),
        r#"{"data":[{"id":7,"key":"k1","amount":0.1000000000000000055,"currency":"EUR","at":"1970-01-01T00:00:01Z"},
                    {"id":"b","key":null,"amount":"12.50","at":"1970-01-01T00:00:01Z","x":{"y":[]}}],"next":"c2"}"#,
    )
    .unwrap();
    assert_eq!(page.next.as_deref(), Some("c2"));
    let [first, second] = &page.entries[..] else { panic!("{page:?}") };
    assert_eq!(first.provider_id, "7");
    assert_eq!(first.amount, Some("0.1000000000000000055".parse().unwrap()));
    assert_ne!(first.amount, Some("0.1".parse().unwrap()));
    assert_eq!((&second.key, &second.currency), (&None, &None));
    assert!(second.raw.ends_with(b"\"x\":{\"y\":[]}}"));
}

#[test]
fn an_item_that_cannot_be_understood_is_a_flaw() {
    let page = read(
        list(),
        r#"{"data":[{"id":"a"},{"id":{},"at":"1970-01-01T00:00:01Z"},17,
                    {"id":"d","amount":true,"at":"1970-01-01T00:00:01Z"},
                    {"id":"e","amount":"secret","at":"1970-01-01T00:00:01Z"}],"next":null}"#,
    )
    .unwrap();
    assert!(page.entries.is_empty());
    let flaws: Vec<String> = page.flaws.iter().map(ToString::to_string).collect();
    assert_eq!(flaws.len(), 5);
    assert_eq!(flaws[0], "item 0: it has no time");
    assert!(!flaws.join("").contains("secret"));
}

#[test]
fn a_page_that_cannot_be_understood_is_an_error() {
    for body in ["", "<html>", "{}", r#"{"data":{}}"#, r#"{"data":[],"next":{}}"#] {
        assert!(read(list(), body).is_err(), "{body}");
    }
    for body in [r#"{"data":[]}"#, r#"{"data":[],"next":null}"#, r#"{"data":[],"next":""}"#] {
        assert_eq!(read(list(), body).unwrap().next, None, "{body}");
    }
}

#[test]
fn a_page_can_go_on_behind_its_last_item() {
    let paging = || Paging::LastId { more: "/has_more".parse().unwrap() };
    let list = || HttpList::new(URL, items(), paging());
    let more = r#"{"data":[{"id":"a","at":"1970-01-01T00:00:01Z"},{"id":"b","at":"1970-01-01T00:00:01Z"}],"has_more":true}"#;
    assert_eq!(read(list(), more).unwrap().next.as_deref(), Some("b"));
    let last = r#"{"data":[{"id":"a","at":"1970-01-01T00:00:01Z"}],"has_more":false}"#;
    assert_eq!(read(list(), last).unwrap().next, None);
    assert!(read(list(), r#"{"data":[],"has_more":true}"#).is_err());
}

/// Null ends a list. An empty text ends it only where that is declared.
#[test]
fn an_empty_cursor_is_a_flaw_unless_it_is_declared() {
    let pointer = || "/next".parse().unwrap();
    let item = r#"{"id":"a","at":"1970-01-01T00:00:01Z"}"#;
    for (paging, body, is_flawed) in [
        (Paging::Next(pointer()), r#"{"data":[ITEM],"next":""}"#, true),
        (Paging::Next(pointer()), r#"{"data":[ITEM],"next":null}"#, false),
        (Paging::Next(pointer()), r#"{"data":[],"next":""}"#, true),
        (Paging::Next(pointer()), r#"{"data":[],"next":null}"#, false),
        (Paging::NextOrEmpty(pointer()), r#"{"data":[],"next":""}"#, false),
        (Paging::NextOrEmpty(pointer()), r#"{"data":[ITEM],"next":""}"#, false),
        (Paging::NextOrEmpty(pointer()), r#"{"data":[ITEM],"next":null}"#, false),
        (Paging::NextOrEmpty(pointer()), r#"{"data":[ITEM]}"#, true),
    ] {
        let list = HttpList::new(URL, items(), paging.clone());
        let page = read_bytes(list, body.replace("ITEM", item)).unwrap();
        assert_eq!(page.next, None, "{paging:?} {body}");
        assert_eq!(!page.flaws.is_empty(), is_flawed, "{paging:?} {body}");
    }
    let list = HttpList::new(URL, items(), Paging::NextOrEmpty(pointer()));
    let page = read(list, r#"{"data":[],"next":"c2"}"#).unwrap();
    assert_eq!(page.next.as_deref(), Some("c2"));
}

/// While there are more, an id that is empty leads nowhere, and ends nothing.
#[test]
fn a_last_item_without_an_id_does_not_end_a_list_that_has_more() {
    let list =
        || HttpList::new(URL, items(), Paging::LastId { more: "/has_more".parse().unwrap() });
    for id in [r#""""#, "null"] {
        let body = r#"{"data":[{"id":ID,"at":"1970-01-01T00:00:01Z"}],"has_more":true}"#;
        assert!(read_bytes(list(), body.replace("ID", id)).is_err(), "{id}");
    }
}

/// An API that pages in another way than was declared is not a list of one page.
#[test]
fn a_page_without_word_of_the_next_one_is_a_flaw() {
    let more = || Paging::LastId { more: "/has_more".parse().unwrap() };
    let item = r#"{"id":"a","at":"1970-01-01T00:00:01Z"}"#;
    let single = URL.replace("&after={cursor}", "");
    for (list, body, is_flawed) in [
        (HttpList::new(URL, items(), next()), r#"{"data":[ITEM],"has_more":true}"#, true),
        (HttpList::new(URL, items(), next()), r#"{"data":[ITEM],"next":null}"#, false),
        (HttpList::new(URL, items(), next()), r#"{"data":[]}"#, true),
        (HttpList::new(URL, items(), more()), r#"{"data":[]}"#, true),
        (HttpList::new(URL, items(), more()), r#"{"data":[ITEM],"has_more":null}"#, true),
        (HttpList::new(URL, items(), more()), r#"{"data":[ITEM],"next":"c2"}"#, true),
        (HttpList::new(URL, items(), more()), r#"{"data":[ITEM],"has_more":false}"#, false),
        (HttpList::new(&single, items(), Paging::SinglePage), r#"{"data":[ITEM]}"#, false),
    ] {
        let page = read_bytes(list, body.replace("ITEM", item)).unwrap();
        assert_eq!(!page.flaws.is_empty(), is_flawed, "{body}");
    }
}

/// The declared paging says that the list ends, and something else in the answer that it does not.
#[test]
fn a_last_page_that_contradicts_its_end_is_a_flaw() {
    let more = || Paging::LastId { more: "/has_more".parse().unwrap() };
    let empty_ends = || Paging::NextOrEmpty("/next".parse().unwrap());
    let single = URL.replace("&after={cursor}", "");
    let single = || HttpList::new(&single, items(), Paging::SinglePage);
    let item = r#"{"id":"a","at":"1970-01-01T00:00:01Z"}"#;
    for (list, body) in [
        (list(), r#"{"data":[],"error":"upstream timeout"}"#),
        (list(), r#"{"data":[],"next":null,"error":"upstream timeout"}"#),
        (list(), r#"{"data":[ITEM],"next":null,"has_more":true}"#),
        (list(), r#"{"data":[ITEM],"next":null,"truncated":true}"#),
        (list(), r#"{"data":[ITEM],"next":"c2","partial":true}"#),
        (single(), r#"{"data":[ITEM],"has_more":true}"#),
        (HttpList::new(URL, items(), more()), r#"{"data":[ITEM],"has_more":false,"next":"c1"}"#),
        (HttpList::new(URL, items(), empty_ends()), r#"{"data":[ITEM],"next":"","has_more":true}"#),
    ] {
        let page = read_bytes(list, body.replace("ITEM", item)).unwrap();
        assert!(!page.flaws.is_empty(), "{body}");
    }
    let headers = [(http::header::LINK, http::HeaderValue::from_static("</?p=2>; rel=next"))];
    let headers: HeaderMap = headers.into_iter().collect();
    let body = Bytes::from(format!(r#"{{"data":[{item}],"next":null}}"#));
    let page = list().build().unwrap().read(&headers, &body).unwrap();
    assert_eq!(page.flaws[0].detail, "it has a Link header that leads to a next page");
    let took = || list().harmless("/took".parse().unwrap());
    for (list, is_flawed) in [(list(), true), (took(), false)] {
        let page = read_bytes(list, r#"{"data":[],"next":null,"took":7}"#).unwrap();
        assert_eq!(!page.flaws.is_empty(), is_flawed);
    }
    assert!(list().harmless("".parse().unwrap()).build().is_err());
}

#[test]
fn a_page_states_how_many_items_the_account_has() {
    let body =
        r#"{"data":[{"id":"a","at":"1970-01-01T00:00:01Z"},{"id":"b"}],"next":null,"total":5}"#;
    let page = read(list(), body).unwrap();
    assert_eq!((page.entries.len(), page.passed_over, page.stated.items), (1, 1, 5));
}

#[test]
fn items_that_failed_are_passed_over_and_others_are_not_decided() {
    let made = Made::by_status("/status".parse().unwrap(), &["paid"], &["failed"]);
    let list = HttpList::new(URL, HttpItems { made, ..items() }, next());
    let body = r#"{"data":[{"id":"a","status":"failed"},
                           {"id":"b","status":"paid","at":"1970-01-01T00:00:01Z"},
                           {"id":"c","status":"pending","at":"1970-01-01T00:00:01Z"},
                           {"id":"d","at":"1970-01-01T00:00:01Z"}],"next":null}"#;
    let page = read(list, body).unwrap();
    let read: Vec<_> =
        page.entries.iter().map(|entry| (entry.provider_id.as_str(), entry.is_made)).collect();
    assert_eq!(read, [("b", true), ("c", false), ("d", false)]);
    assert_eq!(page.flaws, []);
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    for url in [
        "payments",
        "ftp://example.com/{cursor}",
        "http://{cursor}.example.com/?a={cursor}",
        "http://u:p@example.com/?a={cursor}",
        "http://example.com/{cursor}",
        "http://example.com/?from={from}",
    ] {
        assert!(HttpList::new(url, items(), next()).build().is_err(), "{url}");
    }
    let single = HttpList::new(URL, items(), Paging::SinglePage);
    assert!(single.build().is_err(), "a cursor, and one page");
    assert!(list().timeout(std::time::Duration::ZERO).build().is_err());
}

#[test]
fn the_list_and_the_paging_member_are_apart_and_not_harmless() {
    let place = |text: &str| text.parse::<Pointer>().unwrap();
    for (paging, harmless) in [
        (next(), "/data"),
        (next(), "/next"),
        (Paging::Next(place("/meta/next")), "/meta"),
        (Paging::Next(place("/data")), "/took"),
        (Paging::Next(place("/data/0/id")), "/took"),
        (Paging::LastId { more: place("/data") }, "/took"),
    ] {
        let list = HttpList::new(URL, items(), paging.clone()).harmless(place(harmless));
        assert!(list.build().is_err(), "{paging:?}, {harmless}");
    }
    assert!(list().harmless(place("/meta/next")).build().is_ok());
}
