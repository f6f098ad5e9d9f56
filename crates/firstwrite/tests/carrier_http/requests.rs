//! What the destination gets to see.

use std::time::Duration;

use bytes::Bytes;
use firstwrite::Timestamp;
use firstwrite::carrier::http::{SignatureError, SigningSecret, verify};
use firstwrite_core::outbox::{Carrier, Ending};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method};

use crate::provider::{PAYLOAD, Provider, WIRE_KEY, answer, carry, message};

#[tokio::test]
async fn the_request_is_the_payload_under_its_wire_key() {
    let provider = Provider::start(|_| answer(200, "")).await;
    carry(&provider.destination().build().unwrap()).await;
    let (parts, body) = provider.seen().remove(0);
    assert_eq!((parts.method, parts.uri.path()), (Method::POST, "/charges"));
    assert_eq!(body, PAYLOAD);
    assert_eq!(parts.headers["idempotency-key"], WIRE_KEY);
    assert_eq!(parts.headers[CONTENT_TYPE], "application/json");
    assert_eq!(parts.headers[HOST], provider.address.to_string());
    let agent = concat!("firstwrite/", env!("CARGO_PKG_VERSION"));
    assert_eq!(parts.headers[USER_AGENT], agent);
    assert!(!parts.headers.contains_key("webhook-signature"));
}

#[tokio::test]
async fn the_settings_say_how_the_request_looks() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let carrier = provider
        .destination()
        .method(Method::PUT)
        .header(AUTHORIZATION, HeaderValue::from_static("Bearer secret"))
        .header(USER_AGENT, HeaderValue::from_static("acme/1"))
        .key_header(HeaderName::from_static("request-id"))
        .quoted_key()
        .build()
        .unwrap();
    carry(&carrier).await;
    let (parts, _) = provider.seen().remove(0);
    assert_eq!(parts.method, Method::PUT);
    assert_eq!(parts.headers[AUTHORIZATION], "Bearer secret");
    assert_eq!(parts.headers[USER_AGENT], "acme/1");
    assert_eq!(parts.headers["request-id"], format!("\"{WIRE_KEY}\"").as_str());
    assert!(!parts.headers.contains_key("idempotency-key"));
}

#[tokio::test]
async fn both_secrets_sign_and_the_id_stays_the_same() {
    let old: SigningSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".parse().unwrap();
    let new: SigningSecret = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7".parse().unwrap();
    let provider = Provider::start(|_| answer(200, "")).await;
    let first_at = Timestamp::from_millis(1_700_000_000_999);
    for now in [first_at, first_at.plus(Duration::from_hours(1))] {
        let carrier = provider.destination().sign_with(old.clone()).sign_with(new.clone());
        carry(&carrier.clock(move || now).build().unwrap()).await;
        let (parts, body) = provider.seen().pop().unwrap();
        for secret in [&old, &new] {
            let secrets = std::slice::from_ref(secret);
            let verified =
                verify(&parts.headers, &body, secrets, Duration::from_secs(1), now).unwrap();
            assert_eq!(verified.id, WIRE_KEY);
            assert_eq!(verified.signed_at.as_millis(), now.as_millis() / 1000 * 1000);
            let forged = verify(&parts.headers, b"{}", secrets, Duration::from_secs(1), now);
            assert_eq!(forged, Err(SignatureError::NoMatch));
        }
    }
}

#[tokio::test]
async fn an_empty_payload_is_a_payload() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let carrier = provider.destination().build().unwrap();
    let mut message = message();
    message.payload = Bytes::new();
    assert!(matches!(carrier.carry(&message).await.ending, Ending::Delivered(_)));
    assert_eq!(provider.seen()[0].0.headers["content-length"], "0");
}

#[tokio::test]
async fn a_content_type_that_is_no_header_is_never_sent() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let carrier = provider.destination().build().unwrap();
    let mut message = message();
    message.content_type = "text/plain\r\nX-Admin: yes".to_owned();
    assert_eq!(carrier.carry(&message).await.ending, Ending::Refused);
    assert_eq!(provider.connection_count(), 0);
}
