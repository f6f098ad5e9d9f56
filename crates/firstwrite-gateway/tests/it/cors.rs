//! Pages of other origins: a replay and a refusal are as readable as the first answer.

use firstwrite_gateway::{Cors, Gateway};

use crate::client::{ask, keyed, post};
use crate::gateway::{rules, start};
use crate::upstream::{Script, Upstream, answer};
use crate::wire::Message;

const SHOP: &str = "https://shop.example";

async fn before(upstream: &Upstream, credentials: bool) -> Gateway {
    let cors = Cors::new(
        &[SHOP.to_owned(), "http://localhost:5173".to_owned()],
        credentials,
        &["x-request-id".to_owned()],
    );
    let mut given = rules(&[upstream]);
    given.cors = Some(cors.unwrap());
    start(given).await
}

/// Who may read an answer, and what of it.
fn permission(answered: &Message) -> (Option<&str>, Option<&str>, bool) {
    let exposed = answered.header("access-control-expose-headers");
    let varies = answered.all("vary").iter().any(|vary| vary.eq_ignore_ascii_case("origin"));
    (answered.header("access-control-allow-origin"), exposed, varies)
}

const EXPOSED: &str = "date, idempotent-replayed, idempotency-expires, idempotency-interim, idempotency-outcome, retry-after, location, etag, link, \
                       preference-applied, x-request-id";

#[tokio::test]
async fn every_answer_carries_the_permission_of_its_own_exchange() {
    let upstream = Upstream::start().await;
    // What the API says of one origin is not what it would say of another.
    let own = "access-control-allow-origin: https://first.example\r\nvary: accept\r\n";
    upstream.does(Script::Answer(answer("201 Created", own, "made")));
    let gateway = before(&upstream, false).await;
    let asked = |key: &str, origin: &str, body: &str| {
        keyed("/pay", key, &format!("origin: {origin}\r\n"), body)
    };
    let allowed = (Some(SHOP), Some(EXPOSED), true);
    let first = ask(gateway.address(), &asked("k", SHOP, "{}")).await;
    assert_eq!((first.status(), permission(&first)), (201, allowed));
    assert_eq!(first.all("vary"), ["accept", "origin"]);
    let replay = ask(gateway.address(), &asked("k", SHOP, "{}")).await;
    assert!(replay.is_replay());
    assert_eq!(permission(&replay), allowed);
    let other = ask(gateway.address(), &asked("k", "http://localhost:5173", "{}")).await;
    assert!(other.is_replay());
    assert_eq!(permission(&other), (Some("http://localhost:5173"), Some(EXPOSED), true));
    let reused = ask(gateway.address(), &asked("k", SHOP, "[]")).await;
    assert_eq!((reused.status(), permission(&reused)), (422, allowed));
    let missing = asked("k", SHOP, "{}").replace("idempotency-key: k\r\n", "");
    let missing = ask(gateway.address(), &missing).await;
    assert_eq!((missing.status(), permission(&missing)), (400, allowed));
    let malformed = format!("GET / HTTP/1.1\r\nhost: u@a\r\norigin: {SHOP}\r\n\r\n");
    let malformed = ask(gateway.address(), &malformed).await;
    assert_eq!((malformed.status(), permission(&malformed)), (400, allowed));
    let passed = format!("GET / HTTP/1.1\r\nhost: a\r\norigin: {SHOP}\r\n\r\n");
    assert_eq!(permission(&ask(gateway.address(), &passed).await), allowed);
    for stranger in ["https://evil.example", "https://shop.example.evil.example", "null"] {
        let refused = ask(gateway.address(), &asked("k", stranger, "{}")).await;
        assert_eq!(permission(&refused), (None, None, true), "{stranger}");
    }
    let none = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!(permission(&none), (None, None, true));
}

#[tokio::test]
async fn a_browser_that_asks_first_is_answered_here() {
    let upstream = Upstream::start().await;
    let gateway = before(&upstream, true).await;
    let asking = |origin: &str| {
        format!(
            "OPTIONS /pay HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\n\
             access-control-request-headers: content-type,idempotency-key\r\n\r\n"
        )
    };
    let answered = ask(gateway.address(), &asking(SHOP)).await;
    assert_eq!(
        (answered.status(), answered.header("access-control-allow-origin")),
        (204, Some(SHOP))
    );
    assert_eq!(answered.header("access-control-allow-methods"), Some("POST"));
    assert_eq!(answered.header("access-control-allow-credentials"), Some("true"));
    let accepted = answered.header("access-control-allow-headers").unwrap();
    for name in ["idempotency-key", "prefer", "content-type"] {
        assert!(accepted.split([',', ' ']).any(|accepted| accepted == name), "{accepted}");
    }
    let stranger = ask(gateway.address(), &asking("https://evil.example")).await;
    assert_eq!((stranger.status(), stranger.header("access-control-allow-origin")), (204, None));
    assert_eq!(stranger.header("access-control-allow-methods"), None);
    assert_eq!(upstream.seen().len(), 0);
    // An OPTIONS of another kind is the API's.
    assert_eq!(ask(gateway.address(), "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").await.status(), 201);
}

#[tokio::test]
async fn without_the_setting_the_api_speaks_for_itself() {
    let upstream = Upstream::start().await;
    let own = "access-control-allow-origin: *\r\n";
    upstream.does(Script::Answer(answer("200 OK", own, "")));
    let gateway = start(rules(&[&upstream])).await;
    let passed = format!("GET / HTTP/1.1\r\nhost: a\r\norigin: {SHOP}\r\n\r\n");
    let passed = ask(gateway.address(), &passed).await;
    assert_eq!(permission(&passed), (Some("*"), None, false));
}
