//! Names, methods and hosts that another server could read as something else than the gateway did.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::Policy;
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::tenants::settings::{Anonymous, HeaderSettings, Source};
use firstwrite_gateway::{AgeLimit, OperationExtras, Operations};

use crate::client::{ask, keyed};
use crate::frames::{
    Came, END_HEADERS, END_STREAM, Frames, HEADERS, block, frame, put as put_head,
};
use crate::gateway::{by, rules, start};
use crate::upstream::Upstream;

/// Trusts `X-Tenant` and `X-User` of callers in `network`.
fn trusting(network: &str) -> Settings {
    let source = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: Some("x-user".to_owned()),
        peers: vec![network.to_owned()],
        namespace: String::new(),
    });
    Settings { anonymous: Anonymous::Everywhere, ..Settings::of(source) }
}

#[tokio::test]
async fn a_name_that_others_read_as_ours_is_dropped() {
    let upstream = Upstream::start().await;
    let mut rules = rules(&[&upstream]);
    rules.tenants = by(&trusting("127.0.0.1"));
    let gateway = start(rules).await;
    let imitations = "X_Tenant: victim\r\nx.user: victim\r\nFirstwrite_Tenant: victim\r\n\
                      firstwrite_key: k\r\nIdempotency_Key: k\r\nX_Forwarded_For: 6.6.6.6\r\n\
                      x_forwarded-proto: https\r\nx_real_ip: 6.6.6.6\r\nX_Mine: 1\r\n\
                      x-tenant: acme\r\n";
    let get = format!("PUT /a HTTP/1.1\r\nhost: a\r\n{imitations}content-length: 0\r\n\r\n");
    for request in [get, keyed("/pay", "mine", imitations, "{}")] {
        assert_eq!(ask(gateway.address(), &request).await.status(), 201);
        let seen = upstream.seen().pop().unwrap();
        let names: Vec<&str> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert!(!names.iter().any(|name| name.contains(['_', '.'])), "{names:?}");
        assert_eq!(seen.all("x-tenant"), ["acme"]);
        assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
    }
}

/// Names of framing and of credentials, with marks that some servers read as a hyphen.
const MISSPELT: [&str; 14] = [
    "transfer_encoding",
    "transfer.encoding",
    "transfer~encoding",
    "content_length",
    "content.length",
    "content_type",
    "content_encoding",
    "keep_alive",
    "proxy_connection",
    "http2_settings",
    "x!a",
    "x_mine",
    "_host",
    "authorization_",
];

#[tokio::test]
async fn a_name_with_other_marks_than_hyphens_is_dropped() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let lines = format!("{}: 2\r\n", MISSPELT.join(": 2\r\n"));
    let put =
        format!("PUT /a HTTP/1.1\r\nhost: a\r\n{lines}x-mine: 1\r\ncontent-length: 0\r\n\r\n");
    let keyed = keyed("/pay", "k", &format!("{lines}x-mine: 1\r\n"), "{}");
    for request in [put, keyed] {
        assert_eq!(ask(gateway.address(), &request).await.status(), 201);
    }
    let mut connection = Frames::connect(gateway.address()).await;
    let mut more: Vec<(&str, &str)> = MISSPELT.iter().map(|name| (*name, "2")).collect();
    more.push(("x-mine", "1"));
    let head = block(&put_head(&more));
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)]).await;
    assert!(matches!(connection.came(1).await, Came::Answer));
    assert_eq!(upstream.seen().len(), 3);
    for seen in upstream.seen() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let odd: Vec<&(String, String)> =
            seen.headers.iter().filter(|(name, _)| !name.bytes().all(is_plain)).collect();
        assert!(odd.is_empty(), "{odd:?}");
        assert_eq!(seen.all("x-mine"), ["1"]);
    }
}

#[tokio::test]
async fn a_name_that_a_setting_spells_so_arrives() {
    let upstream = Upstream::start().await;
    let mut rules = rules(&[&upstream]);
    let mut policy = Policy::default();
    policy.fingerprint.headers.push("x_version".parse().unwrap());
    rules.operations = Arc::new(Operations::new(policy, OperationExtras::default()));
    let gateway = start(rules).await;
    let headers = "x_version: 1\r\nx.version: 2\r\nx-version: 3\r\n";
    assert_eq!(ask(gateway.address(), &keyed("/pay", "k", headers, "{}")).await.status(), 201);
    let seen = &upstream.seen()[0];
    assert_eq!(seen.all("x_version"), ["1"]);
    assert_eq!((seen.header("x.version"), seen.header("x-version")), (None, None));
}

#[tokio::test]
async fn a_method_in_another_case_is_refused() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for method in ["post", "Post", "pOST", "get", "Patch", "delete", "options"] {
        let request = format!("{method} /pay HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(ask(gateway.address(), &request).await.status(), 400, "{method}");
    }
    let mut connection = Frames::connect(gateway.address()).await;
    let head = [(":method", "post"), (":scheme", "http"), (":path", "/pay"), (":authority", "a")];
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&head))]).await;
    assert!(matches!(connection.came(1).await, Came::Answer));
    assert_eq!(upstream.seen().len(), 0);
    // Others may be called what they like.
    let request = "mine /pay HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(ask(gateway.address(), request).await.status(), 201);
}

#[tokio::test]
async fn a_host_has_no_user_wherever_it_is_named() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for target in ["http://u:p@a/", "http://u@a/", "http://a:b@c:80/"] {
        for host in ["", "host: a\r\n", "host: u:p@a\r\n"] {
            let request = format!("GET {target} HTTP/1.1\r\n{host}\r\n");
            assert_eq!(ask(gateway.address(), &request).await.status(), 400, "{request:?}");
        }
    }
    let mut connection = Frames::connect(gateway.address()).await;
    let head = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "u:p@a")];
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&head))]).await;
    connection.came(1).await;
    assert_eq!(upstream.seen().len(), 0);
    assert_eq!(ask(gateway.address(), "GET http://a:80/ HTTP/1.1\r\n\r\n").await.status(), 201);
    assert_eq!(upstream.seen()[0].all("host"), ["a:80"]);
}

#[tokio::test]
async fn crumbs_of_a_cookie_are_one_cookie() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let mut connection = Frames::connect(gateway.address()).await;
    let head = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("cookie", "session=alice"),
        ("cookie", "csrf=1"),
        ("cookie", "c=d"),
    ];
    connection.send(&[&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&head))]).await;
    assert!(matches!(connection.came(1).await, Came::Answer));
    assert_eq!(upstream.seen()[0].all("cookie"), ["session=alice; csrf=1; c=d"]);
}

#[tokio::test]
async fn a_body_of_a_get_arrives() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for method in ["GET", "HEAD", "DELETE", "QUERY"] {
        let request = format!(
            "{method} /find HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n"
        );
        let mut client = crate::client::Client::connect(gateway.address()).await;
        client.send(&request).await;
        let head = crate::wire::read_head(&mut client.0).await.unwrap().unwrap();
        assert_eq!(head.status(), 201, "{method}");
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.text(), "hello", "{method}");
        assert_eq!(seen.all("transfer-encoding"), ["chunked"], "{method}");
        assert_eq!(seen.all("content-length"), [""; 0], "{method}");
    }
    let plain = "GET /find HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(ask(gateway.address(), plain).await.status(), 201);
    assert_eq!(upstream.seen().pop().unwrap().all("transfer-encoding"), [""; 0]);
}

#[tokio::test]
async fn connection_cannot_drop_what_the_gateway_believed() {
    let upstream = Upstream::start().await;
    let mut rules = rules(&[&upstream]);
    rules.tenants = by(&trusting("127.0.0.1"));
    let age = AgeLimit {
        header: "x-sent-at".parse().unwrap(),
        max: Duration::from_mins(1),
        signed: None,
    };
    let extras = OperationExtras { age: Some(age), ..OperationExtras::default() };
    rules.operations = Arc::new(Operations::new(Policy::default(), extras));
    let gateway = start(rules).await;
    let headers = "x-tenant: acme\r\nx-user: ann\r\nx-sent-at: 1\r\nx-hop: 1\r\n\
                   connection: x-tenant, X-User, x-sent-at, x-hop\r\n";
    let answered = ask(gateway.address(), &keyed("/pay", "k", headers, "{}")).await;
    assert_eq!(answered.status(), 201, "{answered:?}");
    let seen = &upstream.seen()[0];
    assert_eq!((seen.header("x-tenant"), seen.header("x-user")), (Some("acme"), Some("ann")));
    assert_eq!((seen.header("x-sent-at"), seen.header("x-hop")), (Some("1"), None));
}

#[tokio::test]
async fn expect_ends_here_and_via_is_added_to() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let headers = "expect: 100-continue\r\nvia: 1.0 edge\r\n";
    let put = format!("PUT /a HTTP/1.1\r\nhost: a\r\n{headers}content-length: 2\r\n\r\n{{}}");
    for request in [keyed("/pay", "k", headers, "{}"), put] {
        let mut client = crate::client::Client::connect(gateway.address()).await;
        assert_eq!(client.ask(&request).await.status(), 100);
        assert_eq!(client.read().await.unwrap().status(), 201);
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.all("expect"), [""; 0]);
        assert_eq!(seen.all("via"), ["1.0 edge", "1.1 firstwrite"]);
    }
}
