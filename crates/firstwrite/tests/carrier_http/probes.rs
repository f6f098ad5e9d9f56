//! Asking whether it happened.

use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite_core::outbox::{Carrier, Probed, Receipt};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, StatusCode};

use crate::provider::{Provider, WIRE_KEY, answer, message};

async fn probe(destination: HttpDestination) -> Probed {
    let carrier = destination.build().unwrap();
    carrier.probe(&message()).unwrap().await
}

fn one(provider: &Provider) -> HttpDestination {
    let template = format!("{}/by-key/{{key}}?k={{key}}", provider.url());
    let settings = ProbeSettings::one(&template, "/id".parse().unwrap());
    provider.destination().probe(settings.absent_on(&[StatusCode::NOT_FOUND]))
}

fn happened(id: &str) -> Probed {
    Probed::Happened(Receipt { provider_id: Some(id.to_owned()) })
}

#[tokio::test]
async fn a_destination_without_a_probe_cannot_be_asked() {
    let provider = Provider::start(|_| answer(200, "")).await;
    assert!(provider.destination().build().unwrap().probe(&message()).is_none());
}

#[tokio::test]
async fn the_question_names_the_key_and_carries_no_payload() {
    let provider = Provider::start(|_| answer(200, r#"{"id":"ch_1"}"#)).await;
    let destination =
        one(&provider).header(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
    assert_eq!(probe(destination).await, happened("ch_1"));
    let (parts, body) = provider.seen().remove(0);
    assert_eq!(parts.method, Method::GET);
    let encoded = "order-1%3Acharge%3Aef56e51bcb051fa4";
    assert_eq!(parts.uri.to_string(), format!("/charges/by-key/{encoded}?k={encoded}"));
    assert_eq!(parts.headers[AUTHORIZATION], "Bearer secret");
    assert!(body.is_empty());
}

#[tokio::test]
async fn the_answer_says_whether_it_happened() {
    for (status, body, expected) in [
        (200, r#"{"id":"ch_1"}"#, Some(happened("ch_1"))),
        (404, "", Some(Probed::NotHappened)),
        (200, "{}", None),
        (302, "", None),
        (500, "", None),
    ] {
        let provider = Provider::start(move |_| answer(status, body)).await;
        let probed = probe(one(&provider)).await;
        match expected {
            Some(expected) => assert_eq!(probed, expected),
            None if status == 302 => assert!(matches!(probed, Probed::NotThere(_))),
            None => assert!(matches!(probed, Probed::Silent(_)), "{status} {body}"),
        }
    }
}

#[tokio::test]
async fn a_list_says_whether_it_happened() {
    let listed = |entries: &str| format!(r#"{{"data":[{entries}]}}"#);
    let ours = format!(r#"{{"charge":{{"id":"ch_1"}},"reference":"{WIRE_KEY}"}}"#);
    let foreign = r#"{"charge":{"id":"ch_of_somebody_else"},"reference":"order-2"}"#;
    for (body, expected) in [
        (listed(&ours), Some(happened("ch_1"))),
        (listed(""), Some(Probed::NotHappened)),
        // An API that ignores the filter lists what others made.
        (listed(foreign), None),
        (listed(&format!("{foreign},{ours}")), Some(happened("ch_1"))),
        (listed(&format!("{ours},{ours}")), None),
        (listed(r#"{"charge":{"id":"ch_1"}}"#), None),
    ] {
        let said = body.clone();
        let provider = Provider::start(move |_| answer(200, &said)).await;
        let template = format!("{}?reference={{key}}", provider.url());
        let [list, key, id] =
            ["/data", "/reference", "/charge/id"].map(|pointer| pointer.parse().unwrap());
        let settings = ProbeSettings::list(&template, list, key, id).empty_is_absent();
        let probed = probe(provider.destination().probe(settings)).await;
        match expected {
            Some(expected) => assert_eq!(probed, expected, "{body}"),
            None => assert!(matches!(probed, Probed::Silent(_)), "{probed:?} {body}"),
        }
    }
}
