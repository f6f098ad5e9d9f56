//! Lost answers that somebody knows, and requests that say how old they are.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::core::{Change, Guard, KeptHeaders, MemoryStore};
use firstwrite::{Key, Outcome, Policy, RecordId, Store as _, Tenant, memory_store};
use firstwrite_gateway::{AgeLimit, Calling, Care, Operations, Probe, ProbeSettings, Rules};
use http::{HeaderName, StatusCode};

use crate::client::{ask, keyed, post};
use crate::gateway::{rules, start, start_on};
use crate::upstream::{Script, Upstream, answer};

fn probe(url: &str) -> ProbeSettings {
    ProbeSettings {
        url: url.to_owned(),
        headers: vec![(http::header::AUTHORIZATION, "Bearer probe".parse().unwrap())],
        status: Some(StatusCode::CREATED),
        list: Some("/data".parse().unwrap()),
        grace: Duration::ZERO,
    }
}

fn asking(settings: ProbeSettings) -> Arc<Operations> {
    let probe = Some(Arc::new(Probe::new(settings, &Calling::default()).unwrap()));
    Arc::new(Operations::new(Policy::default(), Care { probe, ..Care::default() }))
}

fn found(data: &str) -> Script {
    let body = format!(r#"{{"data":{data}}}"#);
    Script::LosePosts(answer("200 OK", "content-type: application/json\r\n", &body))
}

#[tokio::test]
async fn what_the_probe_finds_is_the_answer() {
    let upstream = Upstream::start().await;
    upstream.does(found(r#"[{"id":7}]"#));
    let operations = asking(probe("/payments?key={key}"));
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let first = ask(gateway.address(), &post("k/1", "{}")).await;
    assert_eq!((first.status(), first.text().as_str()), (201, r#"{"id":7}"#));
    assert_eq!(first.header("content-type"), Some("application/json"));
    let again = ask(gateway.address(), &post("k/1", "{}")).await;
    assert_eq!((again.is_replay(), again.body), (true, first.body));
    let seen = upstream.seen();
    let key = seen[0].header("idempotency-key").unwrap();
    let asked = key.replace('/', "%2F").replace(':', "%3A");
    assert_eq!(seen[1].start, format!("GET /payments?key={asked} HTTP/1.1"));
    assert_eq!(seen[1].all("authorization"), ["Bearer probe"]);
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn what_the_probe_does_not_find_so_soon_stays_open() {
    for script in [
        found("[]"),
        Script::LosePosts(answer("404 Not Found", "", "")),
        Script::LosePosts(answer("500 Internal Server Error", "", "")),
        Script::LosePosts(answer("200 OK", "", "no JSON")),
    ] {
        let upstream = Upstream::start().await;
        upstream.does(script.clone());
        let operations = asking(probe("/payments?key={key}"));
        let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
        let lost = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((lost.status(), lost.code()), (504, "outcome-unknown".to_owned()), "{script:?}");
    }
}

#[tokio::test]
async fn somebody_else_can_be_asked() {
    let (upstream, ledger) = (Upstream::start().await, Upstream::start().await);
    upstream.does(Script::HangUp);
    ledger.does(Script::Answer(answer("200 OK", "", r#"{"data":[1]}"#)));
    let operations = asking(probe(&format!("{}/made/{{key}}", ledger.url())));
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.text(), "1");
    assert_eq!(ledger.seen()[0].all("host"), [ledger.address.to_string()]);
}

#[tokio::test]
async fn a_probe_without_a_place_for_the_key_is_refused() {
    for wrong in ["/payments", "http://127.0.0.1:1", "ftp://a/{key}", "{key}"] {
        assert!(Probe::new(probe(wrong), &Calling::default()).is_err(), "{wrong}");
    }
}

/// What the upstream does that shares the store: completes the record under the fence it was told.
async fn complete(store: &MemoryStore, told: &crate::wire::Message) {
    let tenant = Tenant::new(told.header("firstwrite-tenant").unwrap()).unwrap();
    let key = Key::new(told.header("firstwrite-key").unwrap()).unwrap();
    let found = store.get(RecordId::of(&tenant, &key)).await.unwrap().unwrap();
    assert_eq!(found.record.fence.to_string(), told.header("firstwrite-fence").unwrap());
    let outcome =
        Outcome::new(StatusCode::CREATED, KeptHeaders::default(), "written with it".into());
    let guard = Guard::Owner(found.record.fence);
    let retention = Policy::default().retention();
    let change = Change::Complete { outcome, retention };
    store.swap(found.record.id, guard, change, None).await.unwrap();
}

#[tokio::test]
async fn an_upstream_that_shares_the_store_finishes_the_job_itself() {
    for is_lost in [true, false] {
        let upstream = Upstream::start().await;
        upstream.does(Script::AnswerLater(if is_lost {
            String::new()
        } else {
            answer("201 Created", "", "what it says")
        }));
        let store = Arc::new(memory_store());
        let gateway = start_on(Arc::clone(&store), rules(&[&upstream])).await;
        let address = gateway.address();
        let asked = tokio::spawn(async move { ask(address, &post("k", "{}")).await });
        upstream.arrived().await;
        complete(&store, &upstream.seen()[0]).await;
        if is_lost {
            upstream.stop().await;
        } else {
            upstream.release();
        }
        let first = asked.await.unwrap();
        assert_eq!((first.status(), first.text().as_str()), (201, "written with it"), "{is_lost}");
        assert!(!first.is_replay());
        let again = ask(address, &post("k", "{}")).await;
        assert_eq!((again.is_replay(), again.body), (true, first.body));
    }
}

#[tokio::test]
async fn a_request_that_is_too_old_reaches_nobody() {
    let upstream = Upstream::start().await;
    let header = HeaderName::from_static("x-made-at");
    let age = Some(AgeLimit { header, max: Duration::from_mins(1), signed: None });
    let care = Care { age, ..Care::default() };
    let operations = Arc::new(Operations::new(Policy::default(), care));
    let clock = || std::time::UNIX_EPOCH + Duration::from_secs(1000);
    let gateway = start(Rules { operations, clock, ..rules(&[&upstream]) }).await;
    for (header, status) in [("x-made-at: 950\r\n", 201), ("x-made-at: 939\r\n", 400), ("", 400)] {
        let answered = ask(gateway.address(), &keyed("/pay", "k", header, "{}")).await;
        assert_eq!(answered.status(), status, "{header}");
        assert!(status == 201 || answered.code() == "request-too-old");
    }
    assert_eq!(upstream.seen().len(), 1);
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(ask(gateway.address(), get).await.status(), 201, "nobody asks how old a GET is");
}
