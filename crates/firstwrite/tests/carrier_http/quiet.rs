//! What is logged on the way, at the lowest level: never a header's value, a key or a body.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite_core::outbox::{Carrier, Ending, Probed};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::encrypted;
use crate::provider::{Provider, answer, carry, message};

/// Writes down everything that anybody in this thread says, save the test's own server.
#[derive(Clone, Default)]
struct Ears(Arc<Mutex<String>>);

impl Visit for Ears {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Ears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

async fn hear(destination: HttpDestination, template: &str) {
    let ears = Ears::default();
    let listening = tracing::subscriber::set_default(ears.clone());
    let carrier = destination
        .header(AUTHORIZATION, HeaderValue::from_static("Bearer hidden-token"))
        .sign_with("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".parse().unwrap())
        .probe(ProbeSettings::one(template, "/id".parse().unwrap()))
        .build()
        .unwrap();
    assert!(matches!(carry(&carrier).await.ending, Ending::Delivered(_)));
    assert!(matches!(carrier.probe(&message()).unwrap().await, Probed::Happened(_)));
    drop(listening);
    let heard = ears.0.lock().unwrap();
    assert!(!heard.is_empty(), "the clients below do speak");
    for secret in ["hidden-token", "order-1", "amount", "v1,", "ch_1"] {
        let line = heard.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}

#[tokio::test]
async fn nothing_is_given_away_over_http_1() {
    let provider = Provider::start(|_| answer(200, r#"{"id":"ch_1"}"#)).await;
    hear(provider.destination(), &format!("{}/{{key}}", provider.url())).await;
}

#[tokio::test]
async fn nothing_is_given_away_over_http_2() {
    let (provider, destination) = encrypted::start().await;
    let template = format!("https://localhost:{}/{{key}}", provider.address.port());
    hear(destination, &template).await;
}
