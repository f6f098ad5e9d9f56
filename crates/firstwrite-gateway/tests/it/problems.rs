//! Whatever the gateway answers by itself is one kind of document, and its type leads to a page.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use firstwrite::{
    AfterRetention, KeyRequirement, Observer, OnConflict, OnLostAnswer, Policy, ProblemBase,
};
use firstwrite_core::{MemoryStore, RejectionKind, Timestamp};
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::{
    AgeLimit, Calling, Gateway, Limits, Metrics, MetricsLimits, OperationExtras, Operations, Rate,
    Rules, TenantLimits, TenantUsage,
};
use serde_json::Value;

use crate::client::{Client, ask, keyed, post};
use crate::gateway::{anywhere, away_store, by, policy, rules, start, start_on};
use crate::upstream::{Script, Upstream, answer};
use crate::wire::Message;

/// Reads a document, and checks what every document has.
fn document(answered: &Message) -> Value {
    let why = format!("{answered:?}");
    assert_eq!(answered.header("content-type"), Some("application/problem+json"), "{why}");
    let document: Value = serde_json::from_slice(&answered.body).expect(&why);
    let code = document["code"].as_str().expect(&why);
    assert_eq!(document["status"], answered.status(), "{why}");
    assert_eq!(document["type"], format!("/.firstwrite/problems/{code}"), "{why}");
    assert!(document["title"].is_string() && document["safe_new_key"].is_boolean(), "{why}");
    let retryable = document["retryable"].as_bool().expect(&why);
    let said = answered.header("retry-after").map(|seconds| seconds.parse::<u64>().unwrap());
    assert_eq!((said.is_some(), document["retry_after"].as_u64()), (retryable, said), "{why}");
    let error = &document["error"];
    assert_eq!((&error["code"], &error["message"]), (&document["code"], &document["detail"]));
    assert!(error["type"].as_str().unwrap().ends_with("_error"), "{why}");
    document
}

/// The codes that were answered so far.
type Codes = BTreeSet<String>;

/// Kinds that no gateway answers with, since it has no handlers that could take a transaction.
const OF_THE_LAYER_ALONE: [RejectionKind; 1] = [RejectionKind::Misconfigured];

/// Checks a document, that its code is as expected, and that its page is served.
async fn check(codes: &mut Codes, gateway: &Gateway, answered: &Message, status: u16, code: &str) {
    codes.insert(code.to_owned());
    let document = document(answered);
    assert_eq!(
        (answered.status(), document["code"].as_str()),
        (status, Some(code)),
        "{answered:?}"
    );
    let path = document["type"].as_str().unwrap();
    let page = ask(gateway.address(), &get(path)).await;
    assert_eq!(
        (page.status(), page.header("content-type")),
        (200, Some("text/markdown; charset=utf-8"))
    );
    assert!(page.text().starts_with(&format!("# {code} (")), "{}", page.text());
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

/// A gateway that gives up soon.
fn hasty(upstream: &Upstream) -> Rules {
    let calling = Calling {
        answer_within: Duration::from_millis(50),
        idle_for_max: Duration::from_millis(50),
        ..rules(&[upstream]).calling
    };
    Rules { calling, ..rules(&[upstream]) }
}

#[tokio::test]
async fn every_kind_of_refusal_is_a_document_with_a_page() {
    let mut codes = Codes::new();
    of_requests(&mut codes).await;
    of_the_parser(&mut codes).await;
    of_failures(&mut codes).await;
    of_keys(&mut codes).await;
    of_limits(&mut codes).await;
    let all = RejectionKind::ALL.into_iter().filter(|kind| !OF_THE_LAYER_ALONE.contains(kind));
    let all: Codes = all.map(|kind| kind.code().to_owned()).collect();
    assert_eq!(codes, all, "a kind is missing here");
}

/// What is refused by the request alone.
async fn of_requests(codes: &mut Codes) {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    given.operations = policy(Policy::default().request_bytes_max(10));
    let gateway = start(given).await;
    let long = format!("/{}", "a".repeat(9000));
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    for (request, status, code) in [
        ("GET / HTTP/1.1\r\nhost: u@a\r\n\r\n".to_owned(), 400, "request-malformed"),
        ("get / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 400, "request-malformed"),
        ("CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n".to_owned(), 405, "method-not-allowed"),
        (get(&long), 414, "target-too-long"),
        (keyed("/pay", "k", upgrade, "{}"), 400, "upgrade-refused"),
        (keyed("/pay", "", "", "{}"), 400, "key-invalid"),
        (post("k", "{}").replace("idempotency-key: k\r\n", ""), 400, "key-missing"),
        (post("k", "{\"a\":\"long\"}"), 413, "body-too-large"),
        (keyed("/pay", "k", "content-type: application/grpc\r\n", "{}"), 415, "grpc-unsupported"),
        (get("/.firstwrite/operations/unused"), 401, "tenant-unknown"),
        (
            get("/.firstwrite/operations/unused")
                .replace("\r\n\r\n", "\r\nauthorization: a\r\n\r\n"),
            404,
            "key-unknown",
        ),
        (get("/.firstwrite/problems/unknown"), 404, "not-found"),
        (
            keyed("/.firstwrite/operations/k", "k", "authorization: a\r\n", ""),
            405,
            "method-not-allowed",
        ),
        (keyed("/.firstwrite/problems/not-found", "k", "", ""), 405, "method-not-allowed"),
    ] {
        let answered = ask(gateway.address(), &request).await;
        check(codes, &gateway, &answered, status, code).await;
    }
    assert_eq!(upstream.seen().len(), 0);
    ask(gateway.address(), &post("used", "{}")).await;
    let reused = ask(gateway.address(), &post("used", "{ \"a\":1}")).await;
    check(codes, &gateway, &reused, 422, "key-reused").await;
}

/// What is refused before there is a request.
async fn of_the_parser(codes: &mut Codes) {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let many = "x-a: b\r\n".repeat(101);
    let wide = "b".repeat(100_000);
    let long = "a".repeat(70_000);
    for (request, status, code) in [
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "request-malformed"),
        (
            "POST /pay HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n".to_owned(),
            400,
            "request-malformed",
        ),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), 431, "head-too-large"),
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx-a: {wide}\r\n\r\n"), 431, "head-too-large"),
        (format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"), 414, "target-too-long"),
    ] {
        let mut client = Client::connect(gateway.address()).await;
        // A request before it on the same connection is answered as ever.
        assert_eq!(client.ask(&get("/first")).await.status(), 201);
        let refused = client.ask(&request).await;
        assert_eq!(refused.header("connection"), Some("close"), "{refused:?}");
        check(codes, &gateway, &refused, status, code).await;
        assert!(client.is_closed().await);
    }
    // What an API answers so, and with nothing else, stays its own.
    upstream.does(Script::AnswerAndHangUp(
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ));
    let passed = ask(gateway.address(), &get("/a")).await;
    assert_eq!((passed.status(), passed.text().as_str()), (400, ""), "{passed:?}");
}

/// Failures of the API and the store.
async fn of_failures(codes: &mut Codes) {
    let upstream = Upstream::start().await;
    let address = upstream.address;
    let store = away_store();
    let gateway = Gateway::start(store.clone(), &anywhere(), hasty(&upstream)).await.unwrap();
    upstream.does(Script::HangUp);
    for (method, retryable) in [("GET", true), ("PUT", true), ("PATCH", false)] {
        let request = format!("{method} /a HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        let lost = ask(gateway.address(), &request).await;
        check(codes, &gateway, &lost, 502, "answer-lost").await;
        assert_eq!(document(&lost)["retryable"], retryable);
    }
    upstream.does(Script::AnswerLater(String::new()));
    check(codes, &gateway, &ask(gateway.address(), &get("/a")).await, 504, "answer-lost").await;
    let lost = ask(gateway.address(), &post("k", "{}")).await;
    check(codes, &gateway, &lost, 504, "outcome-unknown").await;
    let mut slow = Client::connect(gateway.address()).await;
    let stalled = slow.ask(&post("slow", "{\"a\":1}").replace("{\"a\":1}", "{")).await;
    check(codes, &gateway, &stalled, 408, "request-timeout").await;
    upstream.stop().await;
    assert!(std::net::TcpStream::connect(address).is_err());
    for request in [get("/a"), post("other", "{}")] {
        let away = ask(gateway.address(), &request).await;
        check(codes, &gateway, &away, 502, "upstream-unreachable").await;
    }
    store.goes_away();
    let away = ask(gateway.address(), &post("third", "{}")).await;
    check(codes, &gateway, &away, 503, "store-unavailable").await;
}

/// What a key's own record says.
async fn of_keys(codes: &mut Codes) {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    given.operations = policy(Policy::default().response_bytes_max(10));
    let gateway = start(given).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "longer than is kept")));
    let mut first = Client::connect(gateway.address()).await;
    first.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let second = ask(gateway.address(), &post("k", "{}")).await;
    check(codes, &gateway, &second, 409, "in-progress").await;
    upstream.release();
    assert_eq!(first.read().await.unwrap().status(), 201);
    let third = ask(gateway.address(), &post("k", "{}")).await;
    check(codes, &gateway, &third, 409, "answer-not-kept").await;
    // Its beginning says that nothing ran.
    let cut = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 9\r\n\r\nhalf";
    upstream.does(Script::AnswerAndHangUp(cut.to_owned()));
    let failed = ask(gateway.address(), &post("cut", "{}")).await;
    check(codes, &gateway, &failed, 500, "attempt-failed").await;
    // A key that is spent, by a clock that goes on.
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let time = move || Timestamp::EPOCH.plus(Duration::from_secs(clock.load(Ordering::SeqCst)));
    let mut given = rules(&[&upstream]);
    let remembered = AfterRetention::Refuse(Duration::from_hours(1000));
    given.operations = policy(Policy::default().after_retention(remembered));
    let gateway = start_on(Arc::new(MemoryStore::new(time)), given).await;
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), 201);
    now.store(Policy::RETENTION_DEFAULT.as_secs() + 1, Ordering::SeqCst);
    let spent = ask(gateway.address(), &post("k", "{}")).await;
    check(codes, &gateway, &spent, 410, "key-expired").await;
}

/// What is refused by limits of time, of rate and of room.
async fn of_limits(codes: &mut Codes) {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    let header = http::HeaderName::from_static("x-sent-at");
    let age = AgeLimit { header, max: Duration::from_mins(1), signed: None };
    let extras = OperationExtras { age: Some(age), ..OperationExtras::default() };
    given.operations = Arc::new(Operations::new(Policy::default(), extras));
    given.clock = || UNIX_EPOCH + Duration::from_hours(1);
    let gateway = start(given).await;
    let old = keyed("/pay", "k", "x-sent-at: 1\r\n", "{}");
    check(codes, &gateway, &ask(gateway.address(), &old).await, 400, "request-too-old").await;
    let rates = TenantLimits {
        requests: Some(Rate { per_second: 0.01, burst: 1.0 }),
        ..TenantLimits::default()
    };
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let usage = Arc::new(TenantUsage::new());
    let limits = Limits::new(rates, HashMap::new(), usage, metrics);
    let calling = Calling { held_bytes_max: 32 * 1024, ..rules(&[]).calling };
    let observer = Some(Arc::new(limits) as Arc<dyn Observer>);
    let gateway = start(Rules { observer, calling, ..rules(&[&upstream]) }).await;
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), 201);
    let limited = ask(gateway.address(), &post("k", "{}")).await;
    check(codes, &gateway, &limited, 429, "rate-limited").await;
    let large = keyed("/pay", "l", "authorization: b\r\n", &format!("\"{}\"", "x".repeat(20_000)));
    check(codes, &gateway, &ask(gateway.address(), &large).await, 503, "overloaded").await;
}

/// The parts of a text that begin behind `mark` and end before `end`.
fn between<'a>(text: &'a str, mark: &str, end: char) -> Vec<&'a str> {
    text.split(mark).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
}

#[tokio::test]
async fn every_link_of_a_page_leads_to_a_page() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let mut count = 0;
    for kind in RejectionKind::ALL {
        let page = format!("/.firstwrite/problems/{}", kind.code());
        let markdown = ask(gateway.address(), &get(&page)).await.text();
        let browser = get(&page).replace("\r\n\r\n", "\r\naccept: text/html\r\n\r\n");
        let html = ask(gateway.address(), &browser).await.text();
        for link in [between(&markdown, "](", ')'), between(&html, "href=\"", '"')].concat() {
            assert!(!link.contains(['/', '#']), "{page}: {link}");
            let linked =
                ask(gateway.address(), &get(&format!("/.firstwrite/problems/{link}"))).await;
            let title = format!("# {} (", link.trim_end_matches(".md"));
            assert!(linked.text().starts_with(&title), "{page}: {link}: {linked:?}");
            count += 1;
        }
    }
    assert!(count > 3, "no page had a link");
    assert_eq!(upstream.seen().len(), 0);
}

/// Sent in one piece with the first, which is answered by the API or at once.
#[tokio::test]
async fn a_second_request_that_cannot_be_parsed_gets_a_document() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let broken = "GET /b HTTP/1.1\r\nno colon\r\n\r\n";
    for (before, status) in [("/a", 201), ("/.firstwrite/problems/not-found", 200)] {
        let mut client = Client::connect(gateway.address()).await;
        let first = client.ask(&format!("{}{broken}", get(before))).await;
        let second = client.read().await.expect("an answer");
        assert_eq!((first.status(), second.status()), (status, 400), "{before}");
        assert_eq!(document(&second)["code"], "request-malformed", "{before}");
        assert!(client.is_closed().await);
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_page_is_html_for_browsers_and_the_operator_may_keep_pages_elsewhere() {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    given.problem_base = ProblemBase::new("https://shop.example/errors").unwrap();
    given.tenants = by(&Settings::authorization());
    let gateway = start(given).await;
    let path = "/.firstwrite/problems/key-missing";
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\naccept: text/html,*/*;q=0.8\r\n\r\n");
    let page = ask(gateway.address(), &request).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<h1>key-missing (400)</h1>"), "{}", page.text());
    assert_eq!(page.header("content-security-policy"), Some("default-src 'none'"));
    let unknown = ask(gateway.address(), &post("k", "{}")).await;
    let malformed = ask(gateway.address(), "GET / HTTP/1.1\r\nhost: u@a\r\n\r\n").await;
    for (refused, code) in [(unknown, "tenant-unknown"), (malformed, "request-malformed")] {
        let document: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(document["type"], format!("https://shop.example/errors/{code}"));
    }
}

#[tokio::test]
async fn an_optional_key_may_be_left_out_by_a_grpc_call() {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    given.operations = policy(Policy::default().key(KeyRequirement::Optional));
    let gateway = start(given).await;
    let call = keyed("/s.S/M", "k", "content-type: application/grpc\r\n", "{}");
    assert_eq!(ask(gateway.address(), &call).await.code(), "grpc-unsupported");
    let call = call.replace("idempotency-key: k\r\n", "").replace("grpc", "grpc-web");
    assert_eq!(ask(gateway.address(), &call).await.status(), 201);
}

#[tokio::test]
async fn who_waits_for_an_attempt_gets_the_type_that_its_leader_gets() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(String::new()));
    let mut given = hasty(&upstream);
    given.problem_base = ProblemBase::new("https://shop.example/errors").unwrap();
    given.calling.answer_within = Duration::from_secs(2);
    let waiting = OnConflict::Wait(Duration::from_secs(20));
    given.operations =
        policy(Policy::default().on_lost_answer(OnLostAnswer::Resend).on_conflict(waiting));
    let gateway = start(given).await;
    let mut leader = Client::connect(gateway.address()).await;
    leader.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let mut follower = Client::connect(gateway.address()).await;
    follower.send(&post("k", "{}")).await;
    for client in [&mut leader, &mut follower] {
        let answered = client.read().await.unwrap();
        let document: Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(document["type"], "https://shop.example/errors/outcome-unknown", "{answered:?}");
    }
    assert_eq!(upstream.seen().len(), 1);
}
