//! What is counted of traffic that is known.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::worker::TurnObserver as _;
use firstwrite::{Key, Policy, Store as _, Tenant};
use firstwrite_core::Message;
use firstwrite_core::protocol::Swept;
use firstwrite_gateway::{AgeLimit, MetricsLimits, OperationExtras, Operations, Rules};
use http::{HeaderName, Method};

use crate::client::{Client, keyed, post};
use crate::gateway::rules;
use crate::scrape::Watched;
use crate::upstream::{Script, Upstream, answer};

const GET: &str = "GET /things HTTP/1.1\r\nhost: shop.example\r\n\r\n";

#[tokio::test]
async fn counts_are_those_of_the_traffic() {
    let upstream = Upstream::start().await;
    let named = Operations::new(Policy::default(), OperationExtras::default()).protected(
        Method::POST,
        "/pay/{id}",
        Policy::default(),
        OperationExtras::default(),
    );
    let rules = Rules { operations: Arc::new(named), ..rules(&[&upstream]) };
    let watched = Watched::start(rules).await;
    for key in ["a", "b", "a", "a"] {
        watched.ask(&keyed("/pay/1", key, "", "{}")).await;
    }
    watched.ask(&keyed("/pay/1", "a", "", "[]")).await;
    watched.ask(&keyed("/chosen/by/the/client", "c", "", "{}")).await;
    watched.ask(&post("", "{}")).await;
    watched.ask(GET).await;
    watched.ask(GET).await;
    upstream.does(Script::Answer(answer("404 Not Found", "", "")));
    watched.ask(GET).await;
    upstream.does(Script::HangUp);
    watched.ask(GET).await;
    watched.ask(&keyed("/pay/1", "lost", "", "{}")).await;
    upstream.stop().await;
    watched.ask(GET).await;
    watched.ask(&keyed("/pay/1", "not-sent", "", "{}")).await;
    watched.ask("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n").await;
    let scraped = watched.scrape().await;
    let request = |how, operation| {
        format!("requests_total{{how=\"{how}\",operation=\"{operation}\",tenant=\"anonymous\"}}")
    };
    scraped.assert(&[
        (&request("ran", "POST /pay/{id}"), 3.0),
        (&request("replayed", "POST /pay/{id}"), 2.0),
        (&request("key-reused", "POST /pay/{id}"), 1.0),
        (&request("outcome-unknown", "POST /pay/{id}"), 1.0),
        (&request("ran", "other"), 1.0),
        (&request("key-invalid", "other"), 1.0),
        ("reservation_duration_seconds_count", 8.0),
        ("replay_duration_seconds_count", 2.0),
        ("passed_requests_total{status=\"2xx\"}", 2.0),
        ("passed_requests_total{status=\"4xx\"}", 1.0),
        ("passed_requests_total{status=\"5xx\"}", 2.0),
        ("upstream_errors_total{error=\"lost\"}", 2.0),
        ("upstream_errors_total{error=\"not_sent\"}", 2.0),
        ("refused_heads_total", 1.0),
        ("requests_in_flight{kind=\"protected\"}", 0.0),
        ("requests_in_flight{kind=\"passed\"}", 0.0),
    ]);
    let sum: f64 = scraped.all("requests_total").iter().map(|(_, count)| count).sum();
    assert!((sum - 9.0).abs() < 1e-9, "{}", scraped.text);
    assert!(!scraped.text.contains("chosen"), "{}", scraped.text);
}

#[tokio::test]
async fn what_is_refused_for_its_age_is_counted() {
    let upstream = Upstream::start().await;
    let header = HeaderName::from_static("x-sent-at");
    let age = AgeLimit { header, max: Duration::from_mins(1), signed: None };
    let extras = OperationExtras { age: Some(age), ..OperationExtras::default() };
    let operations = Arc::new(Operations::new(Policy::default(), extras));
    let watched = Watched::start(Rules { operations, ..rules(&[&upstream]) }).await;
    watched.ask(&post("k", "{}")).await;
    let sample = "requests_total{how=\"request-too-old\",operation=\"other\",tenant=\"unknown\"}";
    watched.scrape().await.assert(&[(sample, 1.0)]);
}

#[tokio::test]
async fn tenants_get_labels_up_to_the_limit_and_only_if_they_are_answered_well() {
    let upstream = Upstream::start().await;
    let limits = MetricsLimits { tenants_max: 3 };
    let watched = Watched::limited(rules(&[&upstream]), limits).await;
    let credentials = |name: &str| format!("authorization: Bearer {name}\r\n");
    // Whoever makes names up is refused by whoever knows the real ones.
    upstream.does(Script::Answer(answer("401 Unauthorized", "", "")));
    for number in 0..5 {
        watched.ask(&keyed("/pay", "k", &credentials(&format!("made-up-{number}")), "{}")).await;
    }
    let scraped = watched.scrape().await;
    let is_other = |(labels, _): &(&str, f64)| labels.ends_with("tenant=\"other\"");
    assert!(scraped.all("requests_total").iter().all(is_other), "{}", scraped.text);
    upstream.does(Script::Answer(answer("200 OK", "", "")));
    for number in 0..7 {
        watched.ask(&keyed("/pay", "k", &credentials(&format!("real-{number}")), "{}")).await;
    }
    let scraped = watched.scrape().await;
    let counts = scraped.all("requests_total");
    let (others, named): (Vec<_>, Vec<_>) = counts.iter().partition(|count| is_other(count));
    assert_eq!(named.len(), 3, "{}", scraped.text);
    let others: f64 = others.iter().map(|(_, count)| count).sum();
    assert!((others - 9.0).abs() < 1e-9, "{}", scraped.text);
}

#[tokio::test]
async fn what_is_under_way_is_shown_until_it_is_answered_or_given_up() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("200 OK", "", "")));
    let watched = Watched::start(rules(&[&upstream])).await;
    let mut waits = Client::connect(watched.gateway.address()).await;
    waits.send(&post("a", "{}")).await;
    upstream.arrived().await;
    let mut hangs_up = Client::connect(watched.gateway.address()).await;
    hangs_up.send(&post("b", "{}")).await;
    upstream.arrived().await;
    let in_flight = "requests_in_flight{kind=\"protected\"}";
    watched.scrape().await.assert(&[(in_flight, 2.0)]);
    drop(hangs_up);
    watched.scrape_until(in_flight, 1.0).await;
    // One scrape reads one metric after the other; by the next one both are there.
    let abandoned = "requests_total{how=\"abandoned\",operation=\"other\",tenant=\"other\"}";
    watched.scrape().await.assert(&[(abandoned, 1.0)]);
    // One of the two answers is for nobody.
    upstream.release();
    upstream.release();
    assert_eq!(waits.read().await.unwrap().status(), 200);
    watched.scrape().await.assert(&[(in_flight, 0.0)]);
}

#[tokio::test]
async fn what_the_store_knows_is_read_beside_the_requests() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    upstream.does(Script::HangUp);
    for key in ["a", "b"] {
        watched.ask(&post(key, "{}")).await;
    }
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new("k").unwrap());
    let payload = Bytes::from_static(b"{}");
    let message = Message::new(&tenant, &key, "charge", "provider", payload).unwrap();
    watched.store.outbox().unwrap().enqueue(&message).await.unwrap();
    watched.metrics.look_once(&*watched.store).await.unwrap();
    let scraped = watched.scrape().await;
    scraped.assert(&[
        ("uncertain_records", 2.0),
        ("outbox_messages{destination=\"provider\",state=\"open\"}", 1.0),
        ("outbox_messages{destination=\"provider\",state=\"unknown\"}", 0.0),
        ("outbox_messages{destination=\"provider\",state=\"dead\"}", 0.0),
    ]);
    assert!(scraped.get("uncertain_oldest_age_seconds").is_some(), "{}", scraped.text);
    watched.store.goes_away();
    assert!(watched.metrics.look_once(&*watched.store).await.is_err());
    watched.scrape().await.assert(&[("uncertain_records", 2.0)]);
}

#[tokio::test]
async fn what_the_store_does_not_do_is_counted() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    watched.store.goes_away();
    let refused = watched.ask(&post("k", "{}")).await;
    assert_eq!((refused.status(), refused.code().as_str()), (503, "store-unavailable"));
    let refused = "requests_total{how=\"store-unavailable\",operation=\"other\",tenant=\"other\"}";
    watched.scrape().await.assert(&[
        (refused, 1.0),
        ("store_errors_total{step=\"insert\",kind=\"unavailable\"}", 1.0),
    ]);
}

#[tokio::test]
async fn sweeps_and_reaps_are_counted() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    let before = watched.scrape().await;
    before.assert(&[("swept_records_total{result=\"uncertain\"}", 0.0)]);
    watched.metrics.swept(&Swept { freed: 1, uncertain: 2, moved: 3 });
    watched.metrics.reaped(4);
    let (is_open, seen) = tokio::sync::watch::channel(true);
    watched.metrics.watch_breaker(seen);
    let scraped = watched.scrape().await;
    scraped.assert(&[
        ("swept_records_total{result=\"freed\"}", 1.0),
        ("swept_records_total{result=\"uncertain\"}", 2.0),
        ("swept_records_total{result=\"moved\"}", 3.0),
        ("reaped_records_total", 4.0),
        ("store_breaker_open", 1.0),
    ]);
    let age = |name| scraped.get(name).unwrap();
    assert!(age("sweep_age_seconds") < age("look_age_seconds") + 60.0);
    drop(is_open);
}
