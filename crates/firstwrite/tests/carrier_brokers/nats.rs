//! NATS JetStream.

use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{self, Context};
use firstwrite::carrier::nats::{NatsCarrier, NatsSettings};
use firstwrite_core::outbox::{Carrier, Ending};

use crate::claimed_message::{PAYLOAD, claimed_message};
use crate::{SHORT, check, name, nobody, provider_id, server};
use firstwrite_testkit::{Network, Proxy};

/// A stream of its own, which listens on the subject of its name; made by `config`.
async fn stream(url: &str, config: Config) -> Stream {
    let subjects = vec![config.name.clone()];
    jetstream(url).await.create_stream(Config { subjects, ..config }).await.unwrap()
}

async fn jetstream(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

fn named() -> Config {
    Config { name: name("events"), ..Config::default() }
}

fn carrier(url: &str, subject: &str) -> NatsCarrier {
    let mut settings = NatsSettings::new(url, subject);
    settings.timeout = SHORT;
    NatsCarrier::new(settings).unwrap()
}

async fn count(stream: &mut Stream) -> u64 {
    stream.info().await.unwrap().state.messages
}

#[tokio::test]
async fn a_message_is_stored_once_however_often_it_is_delivered() {
    let Some(url) = server("nats") else { return };
    let mut stream = stream(&url, named()).await;
    let name = stream.cached_info().config.name.clone();
    let (carrier, first, second) = (carrier(&url, &name), claimed_message(), claimed_message());
    assert_eq!(provider_id(carrier.carry(&first).await), Some(format!("{name}:1")));
    assert_eq!(provider_id(carrier.carry(&second).await), Some(format!("{name}:2")));
    let again = carrier.carry(&first).await;
    assert_eq!(again.detail, "stored before");
    assert_eq!(provider_id(again), Some(format!("{name}:1")));
    assert_eq!(count(&mut stream).await, 2);
    let stored = stream.get_raw_message(1).await.unwrap();
    assert_eq!(&stored.payload[..], PAYLOAD);
    assert_eq!(stored.headers.get("Nats-Msg-Id").unwrap().as_str(), first.wire_key());
    assert_eq!(stored.headers.get("Content-Type").unwrap().as_str(), "application/json");
    assert!(carrier.probe(&first).is_none());
}

#[tokio::test]
async fn where_nothing_can_be_stored_it_is_tried_again() {
    let down = carrier(&format!("nats://{}", nobody()), "events");
    check(&down.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    let Some(url) = server("nats") else { return };
    let nowhere = carrier(&url, &name("nowhere"));
    check(&nowhere.carry(&claimed_message()).await, &Ending::Retry, "no stream listens");
    let full = Config { max_messages: 1, discard: DiscardPolicy::New, ..named() };
    let mut full = stream(&url, full).await;
    let subject = full.cached_info().config.name.clone();
    let to_full = carrier(&url, &subject);
    provider_id(to_full.carry(&claimed_message()).await);
    check(&to_full.carry(&claimed_message()).await, &Ending::Retry, "maximum messages exceeded");
    assert_eq!(count(&mut full).await, 1);
    let mut settings = NatsSettings::new(&url, subject);
    settings.stream = Some("another".to_owned());
    let other = NatsCarrier::new(settings).unwrap();
    check(&other.carry(&claimed_message()).await, &Ending::Retry, "expected stream does not match");
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let Some(url) = server("nats") else { return };
    let small = Config { max_message_size: 100, ..named() };
    let small = stream(&url, small).await;
    let carrier = carrier(&url, &small.cached_info().config.name);
    let mut message = claimed_message();
    message.payload = vec![b'x'; 200].into();
    check(&carrier.carry(&message).await, &Ending::Refused, "exceeds maximum");
    // The server's own limit, which the client knows.
    message.payload = vec![b'x'; 1024 * 1024].into();
    check(&carrier.carry(&message).await, &Ending::Refused, "max");
    message.content_type = "text/plain\r\nNats-Msg-Id: other".to_owned();
    check(&carrier.carry(&message).await, &Ending::Refused, "content type");
}

#[tokio::test]
async fn a_lost_acknowledgement_is_unknown_and_recognised_later() {
    let Some(url) = server("nats") else { return };
    // The server may also ask whether the client is there; that is no acknowledgement.
    for (network, detail) in [
        (Network::AnswersLost, "timed out"),
        (Network::CutAt("\"seq\":"), "the connection was lost"),
    ] {
        let mut stream = stream(&url, named()).await;
        let subject = stream.cached_info().config.name.clone();
        let proxy = Proxy::new(&url).await.unwrap();
        let (carrier, message) = (carrier(&proxy.url(&url), &subject), claimed_message());
        provider_id(carrier.carry(&claimed_message()).await);
        proxy.set(network);
        check(&carrier.carry(&message).await, &Ending::Unknown, detail);
        proxy.set(Network::Up);
        let again = carrier.carry(&message).await;
        assert_eq!(again.detail, "stored before", "{network:?}");
        assert_eq!(provider_id(again), Some(format!("{subject}:2")));
        assert_eq!(count(&mut stream).await, 2);
    }
}
