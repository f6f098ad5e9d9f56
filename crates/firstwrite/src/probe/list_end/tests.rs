//! Answers around a list, by what they say about its end.

use http::{HeaderName, HeaderValue};
use serde_json::json;

use super::*;

fn checked(
    headers: &HeaderMap,
    document: &Value,
    (list, paging): (&str, Option<&str>),
    position: Position,
) -> Result<StatedExtent, String> {
    let list: Pointer = list.parse().unwrap();
    let paging: Option<Pointer> = paging.map(|place| place.parse().unwrap());
    let harmless: [Pointer; 1] = ["/meta/took".parse().unwrap()];
    let answer =
        ListAnswer { headers, document, list: &list, paging: paging.as_ref(), harmless: &harmless };
    answer.check(position)
}

/// Returns true if `said`, beside an empty list, says nothing against the end of the list. It stands once in the
/// object that has the list, and once in one above it.
fn ends(said: &Value) -> bool {
    let members = said.as_object().unwrap();
    let mut inside = json!({"result": {"data": []}});
    inside["result"].as_object_mut().unwrap().extend(members.clone());
    let mut beside = json!({"result": {"data": []}});
    beside.as_object_mut().unwrap().extend(members.clone());
    let [inside, beside] = [inside, beside].map(|document| {
        let list = ("/result/data", None);
        let stated = checked(&HeaderMap::new(), &document, list, Position::End);
        stated.is_ok_and(|stated| !stated.exceeds(0, 1))
    });
    assert_eq!(inside, beside, "{said}");
    inside
}

#[test]
fn an_answer_with_nothing_but_harmless_members_ends_its_list() {
    for said in [
        json!({}),
        json!({"has_more": false, "next": null, "next_cursor": "", "nextPage": 0}),
        json!({"links": {"self": "/a", "next": null}}),
        json!({"_links": {"self": {"href": "/a"}}, "total": 0, "errors": []}),
        json!({"object": "list", "url": "/v1/payments", "account": "acct_1", "livemode": true}),
        json!({"ok": true, "done": true, "complete": true, "isLast": true, "last": true}),
        json!({"meta": {"requestId": "r-1"}, "apiVersion": 3, "partial": false}),
        json!({"page": 1, "pages": 1, "per_page": 100, "count": 0}),
        json!({"pageInfo": {"hasNextPage": false, "endCursor": null}}),
        json!({"is_truncated": false, "incomplete_results": false, "timed_out": false}),
    ] {
        assert!(ends(&said), "{said}");
    }
}

#[test]
fn a_member_that_may_mean_more_contradicts_the_end() {
    for name in [
        "has_more",
        "hasMore",
        "hasmore",
        "HASMORE",
        "has_more2",
        "IS_MORE",
        "more",
        "furthermore",
        "truncated",
        "istruncated",
        "partial",
        "timed_out",
        "haserrors",
        "cached",
        "x",
    ] {
        assert!(!ends(&json!({ name: true })), "{name}");
    }
    for name in [
        "next",
        "nextpage",
        "NEXTPAGE",
        "nextPageToken",
        "nextpagetoken",
        "next-url",
        "cursor",
        "cursors",
        "continuationToken",
        "continue",
        "LastEvaluatedKey",
        "error",
        "errormessage",
        "status",
        "message",
        "warning",
        "more",
        "pageToken",
    ] {
        assert!(!ends(&json!({ name: "error" })), "{name}");
        assert!(!ends(&json!({"meta": { name: "c2" }})), "{name}");
    }
    for name in [
        "total",
        "total_count",
        "totalcount",
        "totals",
        "count",
        "counts",
        "count1",
        "hits",
        "numFound",
        "remaining",
        "next_page",
        "offset",
        "size",
        "took",
        "status",
    ] {
        assert!(!ends(&json!({ name: 1 })), "{name}");
        assert!(!ends(&json!({ name: -1 })), "{name}");
        assert!(!ends(&json!({ name: 0.5 })), "{name}");
    }
}

#[test]
fn an_object_an_array_or_a_page_that_may_mean_more_contradicts_the_end() {
    for name in ["pages", "total_pages", "lastPage", "page"] {
        assert!(!ends(&json!({ name: 2 })), "{name}");
    }
    for said in [
        json!({"next": [null]}),
        json!({"next": {"a": null}}),
        json!({"links": {"next": {"href": "/b"}}}),
        json!({"links": [{"rel": "next", "href": "/b"}]}),
        json!({"links": {"rel": "next", "href": "/b"}}),
        json!({"errors": [{"shard": 3}]}),
        json!({"paging": {"cursors": {"after": "c2"}}}),
        json!({"page": {"totalElements": 3}}),
        json!({"object": "error"}),
        json!({"type": "Timeout"}),
        json!({"more": "yes"}),
        json!({"has_more": "false"}),
    ] {
        assert!(!ends(&said), "{said}");
    }
}

/// A name that describes by default may stand over a text that says that the list is not whole.
#[test]
fn a_text_that_speaks_of_a_part_contradicts_the_end() {
    for text in [
        "results truncated",
        "list-truncated",
        "ResultsTruncated",
        "aborted",
        "partial_list",
        "incomplete",
        "cut short",
        "cut_off",
        "degraded",
        "only first 100",
        "only-the-first-100",
        "first 100",
        "100 of 250",
        "items 1-100 of 250",
        "100-of-250",
        "stale",
        "payments that were made",
    ] {
        for name in ["kind", "type", "object", "version", "account"] {
            assert!(!ends(&json!({ name: text })), "{name}: {text}");
            assert!(!ends(&json!({"meta": { name: text }})), "{name}: {text}");
        }
    }
    for said in [
        json!({"kind": "payments#list", "type": "list", "object": "payment.list"}),
        json!({"url": "/v1/payments?limit=100&first=3", "self": "/a/b", "version": "2026-01-31"}),
        json!({"account": "acct_7of9", "requestId": "a-of-b"}),
    ] {
        assert!(ends(&said), "{said}");
    }
}

/// Names that affirm the end are true, or the list may go on.
#[test]
fn what_does_not_affirm_the_end_contradicts_it() {
    for name in ["ok", "success", "done", "complete", "isLast", "is_last_page", "last", "finished"]
    {
        for value in [json!(false), json!(null), json!(0), json!(""), json!("true")] {
            assert!(!ends(&json!({ name: value })), "{name}: {value}");
        }
        assert!(ends(&json!({ name: true })), "{name}");
    }
    for name in ["whole", "all", "valid", "exhausted"] {
        assert!(!ends(&json!({ name: false })), "{name}");
    }
}

#[test]
fn headers_that_lead_on_or_count_more_contradict_the_end() {
    for (header, value, ends) in [
        ("link", "</q?page=2>; rel=\"next\"", false),
        ("link", "</q>; rel=self, </q?page=2>;rel=next", false),
        ("link", "</q?page=2>; REL=\"last Next\"", false),
        ("link", "</q>; rel=\"self\"; title=\"next\"", true),
        ("link", "</next>; rel=\"first\"", true),
        ("x-total-count", "1", false),
        ("total-count", "1", false),
        ("x-total", "many", false),
        ("x-total-count", "0", true),
        ("x-total-pages", "2", false),
        ("x-total-pages", "1", true),
        ("content-range", "items */5", false),
        ("content-range", "items 0-0/5", false),
        ("content-range", "items */0", true),
        ("content-range", "items */*", true),
        ("x-next-page", "2", false),
        ("x-next-page", "", true),
        ("x-has-more", "true", false),
        ("x-ms-continuation", "c2", false),
        ("x-request-id", "7", true),
        // Names that nobody listed.
        ("x-wp-total", "3", false),
        ("x-wp-totalpages", "2", false),
        ("x-wp-totalpages", "1", true),
        ("x-result-count", "3", false),
        ("x-result-count", "0", true),
        ("x-pagination", r#"{"TotalCount":3}"#, false),
        ("x-page", "1", true),
        ("x-page", "2", false),
        ("x-per-page", "20", true),
        ("x-prev-page", "", true),
        ("x-prev-page", "1", false),
        ("x-more-results", "yes", false),
        ("x-more-results", "false", true),
        ("x-next", "/q?page=2", false),
        ("x-truncated", "true", false),
        ("x-truncated", "false", true),
        ("x-partial-content", "1", false),
        ("x-range", "0-9", false),
        ("accept-ranges", "bytes", true),
        ("stripe-account", "acct_1", true),
        ("x-ratelimit-count", "7", true),
        ("warning", "110 - \"Response is Stale\"", false),
        ("age", "300", true),
        ("age", "301", false),
        ("age", "old", false),
    ] {
        let name: HeaderName = header.parse().unwrap();
        let headers: HeaderMap = [(name, HeaderValue::from_static(value))].into_iter().collect();
        let stated = checked(&headers, &json!([]), ("", None), Position::End);
        let is_end = stated.as_ref().is_ok_and(|stated| !stated.exceeds(0, 1));
        assert_eq!(is_end, ends, "{header}: {value}: {stated:?}");
    }
}

/// A page that has a next one may say so in as many ways as it likes, and of trouble in none.
#[test]
fn a_page_in_the_middle_may_say_that_there_are_more_and_nothing_of_trouble() {
    let link = [(LINK, HeaderValue::from_static("</q?page=2>; rel=next"))];
    let link: HeaderMap = link.into_iter().collect();
    for (said, is_harmless) in [
        (json!({"has_more": true, "next_page": 2, "cursor": "c2", "remaining": 4}), true),
        (json!({"links": {"next": {"href": "/b"}}, "isTruncated": true, "done": false}), true),
        (json!({"total": 9, "pages": 2, "last": false, "object": "list"}), true),
        (json!({"error": "upstream timeout"}), false),
        (json!({"partial": true}), false),
        (json!({"last_error": "x"}), false),
        (json!({"ok": false}), false),
        (json!({"shards": 3}), false),
        (json!({"kind": "degraded"}), false),
    ] {
        let mut document = json!({"data": [1], "next": "c2"});
        document.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let stated = checked(&link, &document, ("/data", Some("/next")), Position::Middle);
        assert_eq!(stated.is_ok(), is_harmless, "{said}: {stated:?}");
    }
}

#[test]
fn counts_are_compared_with_what_was_read() {
    let document = json!({"data": [1, 2], "next": null, "total_count": 5, "pages": 2});
    let place = ("/data", Some("/next"));
    let stated = checked(&HeaderMap::new(), &document, place, Position::End).unwrap();
    assert_eq!(stated, StatedExtent { items: 5, pages: 2 });
    assert!(stated.exceeds(4, 2) && stated.exceeds(5, 1) && !stated.exceeds(5, 2));
}
