//! Same requests, seen from outside: a retry spelled differently is replayed or refused, and never run.

use firstwrite_core::{FingerprintRules, Policy};
use http::{HeaderName, HeaderValue, Request};

use super::harness::{RequestBody, World, answer, post};

fn world(fingerprint: FingerprintRules) -> World {
    let policy = Policy::default().fingerprint(fingerprint);
    World::new(policy, |run, _| async move { Ok(answer(201, &format!("run {run}"))) })
}

fn with(name: &'static str, value: &str, body: &str) -> Request<RequestBody> {
    let mut request = post("k", body);
    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    request
}

/// Sends `first`, then `second`, under one key.
async fn check(first: Request<RequestBody>, second: Request<RequestBody>, expected: &str) {
    check_by(FingerprintRules::default(), first, second, expected).await;
}

async fn check_by(
    rules: FingerprintRules,
    first: Request<RequestBody>,
    second: Request<RequestBody>,
    expected: &str,
) {
    let what = format!("{second:?}");
    let world = world(rules);
    assert_eq!(world.send(first).await.summary(), "201 run 1");
    assert_eq!(world.send(second).await.summary(), expected, "{what}");
    assert_eq!(world.runs(), 1, "{what}");
}

const REPLAYED: &str = "201 run 1";
const REFUSED: &str = "422 key-reused";

#[tokio::test(start_paused = true)]
async fn a_service_of_several_names_is_one_if_it_says_so() {
    let at = |host| with("host", host, "{}");
    check(at("a.example"), at("b.example"), REFUSED).await;
    let handler = |run, _| async move { Ok(answer(201, &format!("run {run}"))) };
    let world =
        World::with(handler, |layer| layer.service_name("Shop").policy(Policy::default()).unwrap());
    for host in ["a.example", "b.example:8080", "shop"] {
        assert_eq!(world.send(at(host)).await.summary(), REPLAYED, "{host}");
    }
    assert_eq!(world.send(with("host", "a.example", "[]")).await.summary(), REFUSED);
    assert_eq!(world.runs(), 1);
}

/// By default a service keeps no hints of what differs, and it may be its name alone.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_nothing_advises_to_look_before_a_new_key_is_used() {
    let handler = |run, _| async move { Ok(answer(201, &format!("run {run}"))) };
    let world = World::with(handler, |layer| layer.policy(Policy::default()).unwrap());
    let at = |host| with("host", host, "{}");
    assert_eq!(world.send(at("api.example")).await.summary(), "201 run 1");
    let refused = world.send(at("api.example:8443")).await;
    assert_eq!(refused.summary(), REFUSED);
    let problem = refused.json();
    assert!(problem.get("differing").is_none(), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    for part in ["same action", "host or port", "service_name"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    assert!(detail.find("same action") < detail.find("new key"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn json_is_the_same_by_value_and_never_by_rounding() {
    let deep =
        |levels: usize, space: &str| format!("{}{space}{}", "[".repeat(levels), "]".repeat(levels));
    let (deep_64, deep_65) = (deep(64, ""), deep(65, ""));
    let (deep_64_spaced, deep_65_spaced) = (deep(64, " "), deep(65, " "));
    let cases = [
        (r#"{"a":1,"b":2}"#, "{ \"b\": 2, \"a\": 1 }", REPLAYED),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, REPLAYED),
        (r#"{"a":1}"#, r#"{"a":10e-1}"#, REPLAYED),
        (r#"{"a":0}"#, r#"{"a":-0}"#, REPLAYED),
        (r#"{"a":"A"}"#, r#"{"a":"\u0041"}"#, REPLAYED),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, REFUSED),
        (r#"{"a":1}"#, r#"{"a":"1"}"#, REFUSED),
        (r#"{"a":null}"#, "{}", REFUSED),
        ("{\"a\":\"e\u{301}\"}", "{\"a\":\"\u{e9}\"}", REFUSED),
        // Readers disagree about these, so only the same text is the same request.
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#, REPLAYED),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, REFUSED),
        (r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#, REFUSED),
        (r#"{"a":"\ud800"}"#, r#"{"a":"\ud800"}"#, REPLAYED),
        (r#"{"a":"\ud800"}"#, r#"{"a": "\ud800"}"#, REFUSED),
        ("\u{feff}{}", "{}", REFUSED),
        (&*deep_64, &*deep_64_spaced, REPLAYED),
        (&*deep_65, &*deep_65_spaced, REFUSED),
        (&*deep_65, &*deep_65, REPLAYED),
    ];
    for (first, second, expected) in cases {
        let json = |body| with("content-type", "application/json", body);
        check(json(first), json(second), expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_with_a_new_boundary_is_another_request() {
    let form = |boundary: &str| {
        let body = format!("--{boundary}\r\n\r\n1\r\n--{boundary}--\r\n");
        with("content-type", &format!("multipart/form-data; boundary={boundary}"), &body)
    };
    check(form("a"), form("a"), REPLAYED).await;
    check(form("a"), form("b"), REFUSED).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_body_is_said_to_be_counts() {
    // One text, two forms: which of the amounts is meant, the boundary says.
    let body = "--A\r\n\r\n10\r\n--A--\r\n--B\r\n\r\n9000\r\n--B--\r\n";
    let form = |boundary: &str| {
        with("content-type", &format!("multipart/form-data; boundary={boundary}"), body)
    };
    check(form("A"), form("\"A\""), REPLAYED).await;
    check(form("A"), form("B"), REFUSED).await;
    let json = |content_type: &str| with("content-type", content_type, "{}");
    check(json("application/json"), json("Application/JSON ; charset=\"UTF-8\""), REPLAYED).await;
    check(json("application/json"), json("application/merge-patch+json"), REFUSED).await;
    check(json("text/plain"), json("application/x-www-form-urlencoded"), REFUSED).await;
    let encoded = |coding: &str| with("content-encoding", coding, "x");
    check(encoded("identity"), post("k", "x"), REPLAYED).await;
    check(encoded("gzip"), encoded("GZIP"), REPLAYED).await;
    check(encoded("gzip"), post("k", "x"), REFUSED).await;
}

#[tokio::test(start_paused = true)]
async fn a_header_counts_where_the_policy_names_it() {
    let version = HeaderName::from_static("x-api-version");
    let named = FingerprintRules { headers: vec![version], ..FingerprintRules::default() };
    let sent = |version: &str| with("x-api-version", version, "{}");
    check_by(named.clone(), sent("1"), sent("1"), REPLAYED).await;
    check_by(named.clone(), sent("1"), sent("2"), REFUSED).await;
    check_by(named, sent("1"), post("k", "{}"), REFUSED).await;
    check(sent("1"), sent("2"), REPLAYED).await;
}
