//! What the destination answers, and how the delivery ends by it.

use std::time::Duration;

use firstwrite_core::outbox::{Ending, Receipt};
use http::header::{LOCATION, RETRY_AFTER};

use crate::provider::{Provider, answer, carry};

fn delivered(id: Option<&str>) -> Ending {
    Ending::Delivered(Receipt { provider_id: id.map(str::to_owned) })
}

#[tokio::test]
async fn each_class_of_statuses_has_its_ending() {
    for (status, ending) in [
        (200, delivered(None)),
        (201, delivered(None)),
        (204, delivered(None)),
        (303, Ending::Unknown),
        (304, Ending::NotThere),
        (400, Ending::Refused),
        (401, Ending::NotThere),
        (402, Ending::Refused),
        (403, Ending::NotThere),
        (404, Ending::NotThere),
        (405, Ending::NotThere),
        (407, Ending::NotThere),
        (410, Ending::Refused),
        (422, Ending::Refused),
        (408, Ending::Unknown),
        (409, Ending::Unknown),
        (425, Ending::Retry),
        (429, Ending::Retry),
        (500, Ending::Unknown),
        (502, Ending::Unknown),
        (503, Ending::Unknown),
        (599, Ending::Unknown),
    ] {
        let provider = Provider::start(move |_| answer(status, "")).await;
        let delivery = carry(&provider.destination().build().unwrap()).await;
        assert_eq!(delivery.ending, ending, "{status}");
        assert_eq!(delivery.status, Some(status));
        assert!(delivery.detail.contains(&status.to_string()), "{}", delivery.detail);
        assert_eq!(delivery.is_overloaded, matches!(status, 429 | 503));
        assert_eq!(provider.seen().len(), 1);
    }
}

#[tokio::test]
async fn the_settings_say_what_a_status_means() {
    let provider = Provider::start(|_| answer(409, "")).await;
    let carrier = provider.destination().success_statuses("200-299,409".parse().unwrap());
    assert_eq!(carry(&carrier.build().unwrap()).await.ending, delivered(None));
    let carrier = provider.destination().refusal_statuses("400-499".parse().unwrap());
    assert_eq!(carry(&carrier.build().unwrap()).await.ending, Ending::Refused);
    let provider = Provider::start(|_| answer(404, "")).await;
    let carrier = provider.destination().refusal_statuses("404".parse().unwrap());
    assert_eq!(carry(&carrier.build().unwrap()).await.ending, Ending::Refused);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for (status, ending) in [
        (301, Ending::NotThere),
        (302, Ending::NotThere),
        (303, Ending::Unknown),
        (307, Ending::NotThere),
        (308, Ending::NotThere),
    ] {
        let elsewhere = Provider::start(|_| answer(200, "")).await;
        let url = elsewhere.url();
        let provider = Provider::start(move |_| {
            let mut answer = answer(status, "");
            answer.headers_mut().insert(LOCATION, url.parse().unwrap());
            answer
        })
        .await;
        let delivery = carry(&provider.destination().build().unwrap()).await;
        assert_eq!(delivery.ending, ending);
        assert_eq!(delivery.status, Some(status));
        assert_eq!(elsewhere.connection_count(), 0);
    }
}

#[tokio::test]
async fn the_providers_id_is_in_the_receipt() {
    let provider = Provider::start(|_| answer(201, r#"{"data":[{"id":"ch_1"}]}"#)).await;
    let carrier = provider.destination().provider_id("/data/0/id".parse().unwrap());
    assert_eq!(carry(&carrier.build().unwrap()).await.ending, delivered(Some("ch_1")));
}

#[tokio::test]
async fn a_success_without_its_id_is_unknown() {
    let provider = Provider::start(|_| answer(200, "<html>Log in first</html>")).await;
    let carrier = provider.destination().provider_id("/id".parse().unwrap());
    let delivery = carry(&carrier.build().unwrap()).await;
    assert_eq!(delivery.ending, Ending::Unknown);
    assert_eq!(delivery.detail, "answered 200 OK, but its body is not JSON without repeated names");
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_limit() {
    let long = |spaces: usize| format!("{{\"id\":\"ch_1\"}}{}", " ".repeat(spaces - 13));
    for (bytes, is_read) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let provider = Provider::start(move |_| answer(200, &long(bytes))).await;
        let carrier = provider.destination().provider_id("/id".parse().unwrap());
        let delivery = carry(&carrier.build().unwrap()).await;
        let ending = if is_read { delivered(Some("ch_1")) } else { Ending::Unknown };
        assert_eq!(delivery.ending, ending, "{}", delivery.detail);
        // Who looks for nothing in it does not mind its length.
        let delivery = carry(&provider.destination().build().unwrap()).await;
        assert_eq!(delivery.ending, delivered(None));
    }
}

#[tokio::test]
async fn the_destination_says_when_to_come_again() {
    for (status, value, expected) in [
        (429, "7", Some(7)),
        (503, "7", Some(7)),
        (429, "86400", Some(3600)),
        // The carrier's clock stands at 07:27:30.
        (429, "Wed, 21 Oct 2015 07:28:00 GMT", Some(30)),
        (429, "whenever", None),
        (200, "7", None),
    ] {
        let provider = Provider::start(move |_| {
            let mut answer = answer(status, "");
            answer.headers_mut().insert(RETRY_AFTER, value.parse().unwrap());
            answer
        })
        .await;
        let now = firstwrite::Timestamp::from_millis(1_445_412_450_000);
        let carrier = provider.destination().clock(move || now).build().unwrap();
        let delivery = carry(&carrier).await;
        assert_eq!(delivery.retry_after, expected.map(Duration::from_secs), "{status} {value}");
    }
}
