//! What is logged on the way, at the lowest level: never a header's value, a key or a body.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::sync::Once;

use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite_core::outbox::{Carrier, Ending, Probed};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::encrypted;
use crate::provider::{Provider, answer, carry, message};

/// Writes down everything that is logged in a thread that listens. It is the subscriber of the whole process: one of a
/// single thread misses what another thread logs for the first time while it is set.
struct Ears;

thread_local! {
    /// What this thread has heard, if it listens.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Visit for Ears {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        HEARD.with_borrow_mut(|heard| {
            if let Some(heard) = heard {
                writeln!(heard, "{field}={value:?}").unwrap();
            }
        });
    }
}

impl Subscriber for Ears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Self);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Self);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Self);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

async fn hear(destination: HttpDestination, template: &str) {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| tracing::subscriber::set_global_default(Ears).unwrap());
    HEARD.set(Some(String::new()));
    let carrier = destination
        .header(AUTHORIZATION, HeaderValue::from_static("Bearer hidden-token"))
        .sign_with("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".parse().unwrap())
        .probe(ProbeSettings::one(template, "/id".parse().unwrap()))
        .build()
        .unwrap();
    assert!(matches!(carry(&carrier).await.ending, Ending::Delivered(_)));
    assert!(matches!(carrier.probe(&message()).unwrap().await, Probed::Happened(_)));
    let heard = HEARD.take().unwrap();
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
