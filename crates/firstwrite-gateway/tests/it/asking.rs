//! Lost answers that somebody knows, and requests that say how old they are.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firstwrite::reconcile::Made;
use firstwrite::{Key, Outcome, Policy, ProbeForm, RecordId, Store as _, Tenant, memory_store};
use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{Change, Guard, KeptHeaders, MemoryStore};
use firstwrite_gateway::{
    AgeLimit, Calling, ForwardedKey, Forwarding, Gateway, OperationExtras, Operations, Probe,
    ProbeSettings, Rules,
};
use http::{HeaderName, StatusCode};

use crate::client::{ask, keyed, post};
use crate::gateway::{anywhere, rules, start, start_on};
use crate::upstream::{Script, Upstream, answer};

fn probe(url: &str) -> ProbeSettings {
    ProbeSettings {
        url: url.to_owned(),
        headers: vec![(http::header::AUTHORIZATION, "Bearer probe".parse().unwrap())],
        status: Some(StatusCode::CREATED),
        form: ProbeForm {
            list: Some("/data".parse().unwrap()),
            key: Some("/key".parse().unwrap()),
            empty_is_absent: true,
            ..ProbeForm::default()
        },
        grace: Duration::from_mins(2),
    }
}

fn asking(settings: ProbeSettings) -> Arc<Operations> {
    let probe = Some(Arc::new(Probe::new(settings, &Calling::default()).unwrap()));
    Arc::new(Operations::new(
        Policy::default(),
        OperationExtras { probe, ..OperationExtras::default() },
    ))
}

/// The key that the upstream sees for a client's.
fn forwarded(key: &str) -> String {
    let (tenant, key) = (Tenant::new("anonymous").unwrap(), Key::new(key).unwrap());
    wire_key_of(RecordId::of(&tenant, &key), &key, "forward").unwrap()
}

/// An entry of a list of what was made.
fn entry(id: u32, key: &str) -> String {
    format!(r#"{{"id":{id},"key":"{key}"}}"#)
}

fn found(data: &str) -> Script {
    let body = format!(r#"{{"data":{data}}}"#);
    Script::LosePosts(answer("200 OK", "content-type: application/json\r\n", &body))
}

#[tokio::test]
async fn what_the_probe_finds_is_the_answer() {
    let upstream = Upstream::start().await;
    let made = entry(7, &forwarded("k/1"));
    upstream.does(found(&format!("[{},{made}]", entry(6, "other"))));
    let operations = asking(probe("/payments?key={key}"));
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let first = ask(gateway.address(), &post("k/1", "{}")).await;
    assert_eq!((first.status(), first.text().as_str()), (201, made.as_str()));
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
    let made = entry(1, &forwarded("k"));
    for script in [
        found("[]"),
        Script::LosePosts(answer("404 Not Found", "", "")),
        Script::LosePosts(answer("500 Internal Server Error", "", "")),
        Script::LosePosts(answer("200 OK", "", "no JSON")),
        // An API that ignores the filter lists what others made.
        found(&format!("[{}]", entry(1, "somebody-else"))),
        found(r#"[{"iban":"of somebody else"}]"#),
        found(&format!("[{made},{made}]")),
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
    let made = entry(1, &forwarded("k"));
    ledger.does(Script::Answer(answer("200 OK", "", &format!(r#"{{"data":[{made}]}}"#))));
    let operations = asking(probe(&format!("{}/made/{{key}}", ledger.url())));
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    assert_eq!(ask(gateway.address(), &post("k", "{}")).await.text(), made);
    assert_eq!(ledger.seen()[0].all("host"), [ledger.address.to_string()]);
}

#[tokio::test]
async fn a_probe_without_a_place_for_the_key_is_refused() {
    for wrong in ["/payments", "http://127.0.0.1:1", "ftp://a/{key}", "{key}"] {
        assert!(Probe::new(probe(wrong), &Calling::default()).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_single_answer_with_another_key_settles_nothing() {
    for (key, status) in [(forwarded("k"), 201), ("somebody-else".to_owned(), 504)] {
        let upstream = Upstream::start().await;
        upstream.does(Script::LosePosts(answer("200 OK", "", &entry(1, &key))));
        let form = ProbeForm { key: Some("/key".parse().unwrap()), ..ProbeForm::default() };
        let operations = asking(ProbeSettings { form, ..probe("/made/{key}") });
        let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
        assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), status, "{key}");
    }
}

fn in_2026() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_780_000_000)
}

/// The upstream remembers keys for longer than the gateway, and payments that failed.
#[tokio::test]
async fn a_payment_that_failed_or_is_of_an_earlier_life_settles_nothing() {
    for (status, at, answered) in [
        ("paid", "2999-01-01T00:00:00Z", 201),
        ("failed", "2999-01-01T00:00:00Z", 504),
        ("pending", "2999-01-01T00:00:00Z", 504),
        ("paid", "2001-01-01T00:00:00Z", 504),
    ] {
        let upstream = Upstream::start().await;
        let key = forwarded("k");
        upstream.does(found(&format!(r#"[{{"key":"{key}","status":"{status}","at":"{at}"}}]"#)));
        let mut settings = probe("/payments?key={key}");
        settings.form.made = Made::by_status("/status".parse().unwrap(), &["paid"], &["failed"]);
        settings.form.at = Some("/at".parse().unwrap());
        let operations = asking(settings);
        let gateway = start(Rules { operations, clock: in_2026, ..rules(&[&upstream]) }).await;
        let first = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!(first.status(), answered, "{status} {at}");
    }
}

#[tokio::test]
async fn a_list_whose_entries_cannot_be_compared_is_refused() {
    let form = ProbeForm { list: Some("/data".parse().unwrap()), ..ProbeForm::default() };
    let refused = Probe::new(ProbeSettings { form, ..probe("/{key}") }, &Calling::default());
    assert!(refused.unwrap_err().to_string().contains("a list needs key"));
}

#[tokio::test]
async fn a_probe_about_a_key_that_is_not_forwarded_is_refused() {
    let upstream = Upstream::start().await;
    for key in [ForwardedKey::Original, ForwardedKey::Nothing] {
        let operations = asking(probe("/payments?key={key}"));
        let forwarding = Forwarding { key, ..Forwarding::default() };
        let rules = Rules { operations, forwarding, ..rules(&[&upstream]) };
        let started = Gateway::start(Arc::new(memory_store()), &anywhere(), rules).await;
        let refused = started.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("derived key"), "{refused}");
    }
}

#[tokio::test]
async fn a_probe_that_would_believe_a_no_while_a_call_is_under_way_is_refused() {
    let within = |answer_within| Calling { answer_within, ..Calling::default() };
    let probe = || probe("/payments?key={key}");
    assert!(Probe::new(probe(), &within(Duration::from_secs(119))).is_ok());
    for answer_within in [Duration::from_mins(2), Duration::from_mins(3)] {
        let refused = Probe::new(probe(), &within(answer_within)).unwrap_err().to_string();
        assert!(refused.contains("grace longer than answer_within"), "{refused}");
    }
}

#[tokio::test]
async fn a_probe_whose_answer_would_not_be_kept_is_refused() {
    for (status, holds) in [(201, true), (402, true), (500, false), (429, false), (101, false)] {
        let status = Some(StatusCode::from_u16(status).unwrap());
        let settings = ProbeSettings { status, ..probe("/payments?key={key}") };
        assert_eq!(Probe::new(settings, &Calling::default()).is_ok(), holds, "{status:?}");
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
    let retention = Policy::default().record_retention();
    let change = Change::Complete { outcome, retention };
    store.swap(found.record.id, guard, change, None).await.unwrap();
}

#[tokio::test]
async fn an_upstream_that_shares_the_store_finishes_the_job_itself() {
    for says in ["", "201 Created", "500 Internal Server Error", "429 Too Many Requests"] {
        let upstream = Upstream::start().await;
        let is_lost = says.is_empty();
        upstream.does(Script::AnswerLater(if is_lost {
            String::new()
        } else {
            answer(says, "", "what it says")
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
        assert_eq!((first.status(), first.text().as_str()), (201, "written with it"), "{says}");
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
    let extras = OperationExtras { age, ..OperationExtras::default() };
    let operations = Arc::new(Operations::new(Policy::default(), extras));
    let clock = || UNIX_EPOCH + Duration::from_secs(1000);
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
