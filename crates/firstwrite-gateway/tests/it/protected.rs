//! What a key promises, with an API behind it that knows nothing of keys.

use std::sync::Arc;

use firstwrite::{OnLostAnswer, Policy, memory_store};
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::{Gateway, OperationExtras, Operations, Rules};

use crate::client::{Client, ask, keyed, post};
use crate::gateway::{anywhere, away_store, by, policy, rules, start, start_on};
use crate::upstream::{Script, Upstream, answer};

#[tokio::test]
async fn a_retry_gets_the_first_answer_and_the_upstream_is_asked_once() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let first = ask(gateway.address(), &post("k", r#"{"a":1,"b":2}"#)).await;
    let again = ask(gateway.address(), &post("\"k\"", r#"{ "b": 2, "a": 1 }"#)).await;
    assert_eq!((first.status(), first.is_replay()), (201, false));
    assert_eq!((again.status(), again.is_replay()), (201, true));
    assert_eq!((&again.body, again.header("location")), (&first.body, Some("/made/1")));
    assert_eq!((first.header("set-cookie"), again.header("set-cookie")), (Some("a=b"), None));
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn what_must_not_run_does_not_reach_the_upstream() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    ask(gateway.address(), &post("k", "{}")).await;
    for (request, status, code) in [
        (post("k", r#"{"other":1}"#), 422, "key-reused"),
        (keyed("/other", "k", "", "{}"), 422, "key-reused"),
        (post("", "{}"), 400, "key-invalid"),
        (post("a b", "{}"), 400, "key-invalid"),
        (post("k", "{}").replace("idempotency-key: k\r\n", ""), 400, "key-missing"),
    ] {
        let refused = ask(gateway.address(), &request).await;
        assert_eq!((refused.status(), refused.code().as_str()), (status, code), "{request}");
    }
    assert_eq!(upstream.seen().len(), 1);
}

/// Servers that do not care about case would take it for the operation, which here is protected.
#[tokio::test]
async fn a_method_of_an_operation_in_another_case_is_refused() {
    let upstream = Upstream::start().await;
    let mut given = rules(&[&upstream]);
    let operations = Operations::only_named().protected(
        "PURGE".parse().unwrap(),
        "/cache",
        Policy::default(),
        OperationExtras::default(),
    );
    let reason = "it changes nothing".to_owned();
    given.operations = Arc::new(operations.unprotected("PING".parse().unwrap(), "/", &reason));
    let gateway = start(given).await;
    let of = |method: &str| format!("{method} /cache HTTP/1.1\r\nhost: a\r\n\r\n");
    for (method, status, code) in [
        ("PURGE", 400, "key-missing"),
        ("purge", 400, "request-malformed"),
        ("Purge", 400, "request-malformed"),
        ("ping", 400, "request-malformed"),
        ("mkcol", 400, "request-malformed"),
    ] {
        let refused = ask(gateway.address(), &of(method)).await;
        assert_eq!((refused.status(), refused.code().as_str()), (status, code), "{method}");
    }
    assert_eq!(upstream.seen().len(), 0);
    for method in ["PING", "MKCOL", "mine"] {
        assert_eq!(ask(gateway.address(), &of(method)).await.status(), 201, "{method}");
    }
}

#[tokio::test]
async fn two_credentials_never_meet() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for (credentials, is_replay) in
        [("Bearer a", false), ("Bearer b", false), ("Bearer a", true), ("Bearer b", true)]
    {
        let header = format!("authorization: {credentials}\r\n");
        let answered = ask(gateway.address(), &keyed("/pay", "k", &header, "{}")).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, is_replay), "{credentials}");
    }
    let seen = upstream.seen();
    assert_eq!(seen[1].all("authorization"), ["Bearer b"]);
    // Nor do they at the upstream, if it keeps keys of its own.
    assert_ne!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
}

#[tokio::test]
async fn what_was_never_sent_frees_the_key() {
    let upstream = Upstream::start().await;
    let (rules, address) = (rules(&[&upstream]), upstream.address);
    upstream.stop().await;
    let gateway = start(rules).await;
    let refused = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (502, Some("1")));
    let upstream = Upstream::at(&address.to_string()).await;
    let made = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((made.status(), made.is_replay()), (201, false));
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_lost_answer_is_never_followed_by_a_second_call() {
    let broken = "HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nhalf";
    let unasked = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    for script in [
        Script::HangUp,
        Script::AnswerAndHangUp(broken.to_owned()),
        Script::AnswerAndHangUp("HTTP/1.1 2".to_owned()),
        Script::AnswerAndHangUp("no HTTP at all\r\n\r\n".to_owned()),
        Script::AnswerAndHangUp(unasked.to_owned()),
    ] {
        let upstream = Upstream::start().await;
        upstream.does(script.clone());
        let gateway = start(rules(&[&upstream])).await;
        let lost = ask(gateway.address(), &post("k", "{}")).await;
        let found = (lost.status(), lost.code());
        assert_eq!(found, (504, "outcome-unknown".to_owned()), "{script:?}");
        upstream.does(Script::Answer(answer("201 Created", "", "made")));
        let again = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((again.status(), again.code()), (409, "outcome-unknown".to_owned()));
        assert_eq!(upstream.seen().len(), 1, "{script:?}");
    }
}

#[tokio::test]
async fn where_the_upstream_keeps_keys_a_lost_answer_is_asked_for_again_under_the_same_one() {
    let upstream = Upstream::start().await;
    upstream.does(Script::HangUp);
    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let gateway = start(Rules { operations: policy(resend), ..rules(&[&upstream]) }).await;
    let lost = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((lost.status(), lost.code().as_str()), (504, "outcome-unknown"));
    assert!(lost.text().contains("\"safe_new_key\":false"), "it may have been carried out");
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let made = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((made.status(), made.is_replay()), (201, false));
    let seen = upstream.seen();
    assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    assert_ne!(seen[0].header("firstwrite-fence"), seen[1].header("firstwrite-fence"));
}

#[tokio::test]
async fn what_says_not_now_is_passed_on_and_frees_the_key() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for status in ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests"]
    {
        upstream.does(Script::Answer(answer(status, "retry-after: 7\r\n", "no")));
        let answered = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((answered.text().as_str(), answered.header("retry-after")), ("no", Some("7")));
    }
    upstream.does(Script::Answer(answer("402 Payment Required", "", "declined")));
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), 402);
    let declined = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((declined.status(), declined.is_replay()), (402, true));
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn duplicates_at_the_same_moment_reach_the_upstream_once() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&upstream])).await;
    let mut first = Client::connect(gateway.address()).await;
    first.send(&post("k", "{}")).await;
    upstream.arrived().await;
    for _ in 0..3 {
        let refused = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((refused.status(), refused.code()), (409, "in-progress".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    upstream.release();
    assert_eq!(first.read().await.unwrap().status(), 201);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_caller_who_hangs_up_changes_nothing() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let tenants = by(&Settings::single());
    let gateway = start(Rules { tenants, ..rules(&[&upstream]) }).await;
    let mut client = Client::connect(gateway.address()).await;
    client.send(&post("k", "{}")).await;
    upstream.arrived().await;
    drop(client);
    upstream.release();
    // The status resource waits for the end.
    let status = "GET /.firstwrite/operations/k?wait=20s HTTP/1.1\r\nhost: shop.example\r\n\r\n";
    let status = ask(gateway.address(), status).await;
    assert!(status.text().contains("completed"), "{status:?}");
    let again = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((again.status(), again.is_replay()), (201, true));
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_key_of_dots_is_found_where_its_202_points() {
    let upstream = Upstream::start().await;
    let tenants = by(&Settings::single());
    let gateway = start(Rules { tenants, ..rules(&[&upstream]) }).await;
    for (key, location) in [
        ("..", "/.firstwrite/operations?key=.."),
        ("\"%2e%2e\"", "/.firstwrite/operations?key=%252e%252e"),
        ("a/../b", "/.firstwrite/operations?key=a%2F..%2Fb"),
        ("a/b", "/.firstwrite/operations/a%2Fb"),
    ] {
        let early = keyed("/pay", key, "prefer: respond-async\r\n", "{}");
        let early = ask(gateway.address(), &early).await;
        assert_eq!((early.status(), early.header("location")), (202, Some(location)), "{key}");
        let wait = if location.contains('?') { "&wait=20s" } else { "?wait=20s" };
        let status = format!("GET {location}{wait} HTTP/1.1\r\nhost: shop.example\r\n\r\n");
        let status = ask(gateway.address(), &status).await;
        assert!(status.text().contains("completed"), "{key}: {status:?}");
    }
    // Nothing of it is passed on, whatever the method.
    for start in ["POST /.firstwrite/operations?key=..", "GET /.firstwrite/operations"] {
        let request =
            format!("{start} HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n\r\n");
        assert!(ask(gateway.address(), &request).await.status() >= 404, "{start}");
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn an_answer_too_large_to_keep_is_passed_on_and_leaves_a_mark() {
    let upstream = Upstream::start().await;
    let large = "x".repeat(100);
    upstream.does(Script::Answer(answer("201 Created", "location: /made/7\r\n", &large)));
    let small = Policy::default().response_bytes_max(50);
    let gateway = start(Rules { operations: policy(small), ..rules(&[&upstream]) }).await;
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.text(), large);
    let again = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!(
        (again.status(), again.code().as_str(), again.header("location")),
        (409, "answer-not-kept", Some("/made/7"))
    );
    assert!(again.text().contains("\"first_status\":201"), "{}", again.text());
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn while_the_store_is_away_nothing_is_sent_and_everybody_is_told_to_come_back() {
    let upstream = Upstream::start().await;
    let store = away_store();
    let gateway = Gateway::start(store.clone(), &anywhere(), rules(&[&upstream])).await.unwrap();
    assert_eq!(ask(gateway.address(), &post("known", "{}")).await.status(), 201);
    store.goes_away();
    for key in ["known", "new"] {
        let refused = ask(gateway.address(), &post(key, "{}")).await;
        assert_eq!(
            (refused.status(), refused.code().as_str()),
            (503, "store-unavailable"),
            "{key}"
        );
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    assert_eq!(upstream.seen().len(), 1);
    store.comes_back();
    assert!(ask(gateway.address(), &post("known", "{}")).await.is_replay());
    assert_eq!(ask(gateway.address(), &post("new", "{}")).await.status(), 201);
}

#[tokio::test]
async fn two_gateways_on_one_store_are_one() {
    let upstream = Upstream::start().await;
    let store = Arc::new(memory_store());
    let one = start_on(Arc::clone(&store), rules(&[&upstream])).await;
    let two = start_on(store, rules(&[&upstream])).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let mut first = Client::connect(one.address()).await;
    first.send(&post("k", "{}")).await;
    upstream.arrived().await;
    assert_eq!(ask(two.address(), &post("k", "{}")).await.code(), "in-progress");
    upstream.release();
    first.read().await.unwrap();
    assert!(ask(two.address(), &post("k", "{}")).await.is_replay());
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn the_upstream_is_told_which_record_it_may_complete() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let lies = "firstwrite-fence: 1\r\nfirstwrite-tenant: other\r\nfirstwrite-record: 0\r\n";
    ask(gateway.address(), &keyed("/pay", "k", lies, "{}")).await;
    let seen = &upstream.seen()[0];
    assert_eq!(seen.all("firstwrite-tenant"), ["anonymous"]);
    assert_eq!(seen.all("firstwrite-key"), ["k"]);
    let fence: i64 = seen.header("firstwrite-fence").unwrap().parse().unwrap();
    assert!(fence > 1);
    assert_eq!(seen.header("firstwrite-record").unwrap().len(), 32);
    assert!(seen.header("idempotency-key").unwrap().starts_with("k:forward:"));
}
