//! Redis streams.

use std::time::Duration;

use firstwrite::Timestamp;
use firstwrite::carrier::redis_streams::{RedisStreamsCarrier, RedisStreamsSettings};
use firstwrite_core::outbox::{Carrier, Ending, Probed, Receipt};
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};

use crate::claimed_message::{PAYLOAD, claimed_message};
use crate::{SHORT, check, name, nobody, provider_id, server};
use firstwrite_testkit::{Network, Proxy};

type Entry = (String, Vec<(String, Vec<u8>)>);

/// The other side: reads streams.
struct Reader(MultiplexedConnection);

impl Reader {
    async fn new(url: &str) -> Self {
        let client = Client::open(url).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.0).await.unwrap()
    }

    async fn entries(&mut self, stream: &str) -> Vec<Entry> {
        self.ask(&["XRANGE", stream, "-", "+"]).await
    }

    async fn now(&mut self) -> Timestamp {
        let (seconds, _): (i64, i64) = self.ask(&["TIME"]).await;
        Timestamp::from_millis(seconds * 1000)
    }
}

fn settings(url: &str, stream: &str) -> RedisStreamsSettings {
    let mut settings = RedisStreamsSettings::new(url, stream);
    settings.timeout = SHORT;
    settings.creates_stream = true;
    settings
}

fn carrier(url: &str, stream: &str) -> RedisStreamsCarrier {
    RedisStreamsCarrier::new(settings(url, stream)).unwrap()
}

#[tokio::test]
async fn a_message_is_added_once_however_often_it_is_delivered() {
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let (carrier, first, second) = (carrier(&url, &stream), claimed_message(), claimed_message());
    let id = provider_id(carrier.carry(&first).await).unwrap();
    assert_ne!(provider_id(carrier.carry(&second).await).unwrap(), id);
    assert_eq!(provider_id(carrier.carry(&first).await).unwrap(), id);
    let entries = reader.entries(&stream).await;
    assert_eq!(entries.len(), 2);
    let expected = [
        ("wire_key".to_owned(), first.wire_key().into_bytes()),
        ("content_type".to_owned(), b"application/json".to_vec()),
        ("payload".to_owned(), PAYLOAD.to_vec()),
    ];
    assert_eq!(entries[0], (id, expected.to_vec()));
    let seen = format!("{{{stream}}}:seen:{}", first.wire_key());
    let left: u64 = reader.ask(&["PTTL", &seen]).await;
    let hour = u64::try_from(Duration::from_hours(1).as_millis()).unwrap();
    assert!((hour / 2..=hour).contains(&left), "{left} ms");
}

#[tokio::test]
async fn where_nothing_is_added_it_is_tried_again() {
    let down = carrier(&format!("redis://{}", nobody()), "orders");
    check(&down.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let mut careful = settings(&url, &stream);
    careful.creates_stream = false;
    let careful = RedisStreamsCarrier::new(careful).unwrap();
    let early = claimed_message();
    check(&careful.carry(&early).await, &Ending::Retry, "there is no such stream");
    reader.ask::<()>(&["XGROUP", "CREATE", &stream, "readers", "0", "MKSTREAM"]).await;
    provider_id(careful.carry(&early).await);
    let text = name("text");
    reader.ask::<()>(&["SET", &text, "no stream"]).await;
    check(&carrier(&url, &text).carry(&early).await, &Ending::Retry, "WRONGTYPE");
    let stranger = url.replace("redis://", "redis://nobody:wrong@");
    let stranger = carrier(&stranger, &stream);
    check(&stranger.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    assert_eq!(reader.entries(&stream).await.len(), 1);
}

#[tokio::test]
async fn a_right_that_is_missing_half_way_leaves_nothing_behind() {
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let user = name("guest");
    let guest = carrier(&url.replace("redis://", &format!("redis://{user}:pass@")), &stream);
    let mut ends = Vec::new();
    for right in ["-xadd", "-set", "-eval"] {
        let set = ["ACL", "SETUSER", &user, "reset", "on", ">pass", "~*", "+@all", right];
        reader.ask::<()>(&set).await;
        ends.push(guest.carry(&claimed_message()).await);
    }
    reader.ask::<()>(&["ACL", "DELUSER", &user]).await;
    for (end, detail) in ends.iter().zip(["can't run", "can't run", "NoPerm"]) {
        check(end, &Ending::Retry, detail);
    }
    assert_eq!(reader.entries(&stream).await, []);
}

#[tokio::test]
async fn a_stream_is_kept_at_its_length() {
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let mut short = settings(&url, &stream);
    short.length_max = Some(1);
    let carrier = RedisStreamsCarrier::new(short).unwrap();
    for _ in 0..250 {
        provider_id(carrier.carry(&claimed_message()).await);
    }
    let length: u64 = reader.ask(&["XLEN", &stream]).await;
    assert!(length < 250, "about one block of 100 entries stays, not {length}");
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_recognised_later() {
    let Some(url) = server("redis") else { return };
    let mut reader = Reader::new(&url).await;
    for network in [Network::AnswersLost, Network::CutAt("")] {
        let (proxy, stream) = (Proxy::new(&url).await.unwrap(), name("orders"));
        let (carrier, message) = (carrier(&proxy.url(&url), &stream), claimed_message());
        provider_id(carrier.carry(&claimed_message()).await);
        proxy.set(network);
        check(&carrier.carry(&message).await, &Ending::Unknown, "");
        proxy.set(Network::Up);
        let probed = carrier.probe(&message).unwrap().await;
        let id = reader.entries(&stream).await[1].0.clone();
        assert_eq!(probed, Probed::Happened(Receipt { provider_id: Some(id.clone()) }));
        assert_eq!(provider_id(carrier.carry(&message).await), Some(id), "{network:?}");
        assert_eq!(reader.entries(&stream).await.len(), 2);
    }
}

#[tokio::test]
async fn a_probe_that_finds_nothing_shuts_out_what_came_before_it() {
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let carrier = carrier(&url, &stream);
    let mut earlier = claimed_message();
    earlier.created_at = reader.now().await;
    let mut later = earlier.clone();
    later.fence = earlier.fence.next(0);
    assert_eq!(carrier.probe(&later).unwrap().await, Probed::NotHappened);
    check(&carrier.carry(&earlier).await, &Ending::Retry, "a later claim");
    assert_eq!(carrier.probe(&earlier).unwrap().await, Probed::NotHappened);
    check(&carrier.carry(&earlier).await, &Ending::Retry, "a later claim");
    let id = provider_id(carrier.carry(&later).await);
    assert_eq!(provider_id(carrier.carry(&earlier).await), id);
    let happened = Probed::Happened(Receipt { provider_id: id });
    assert_eq!(carrier.probe(&earlier).unwrap().await, happened);
    assert_eq!(reader.entries(&stream).await.len(), 1);
}

#[tokio::test]
async fn a_probe_is_silent_once_redis_may_have_forgotten() {
    let Some(url) = server("redis") else { return };
    let (mut reader, stream) = (Reader::new(&url).await, name("orders"));
    let (carrier, mut message) = (carrier(&url, &stream), claimed_message());
    let now = reader.now().await.as_millis();
    let minutes = |count: i64| Timestamp::from_millis(now - count * 60_000);
    message.created_at = minutes(600);
    message.maybe_sent_at = Some(minutes(31));
    let silent = Probed::Silent("Redis may have forgotten it by now".to_owned());
    assert_eq!(carrier.probe(&message).unwrap().await, silent);
    message.maybe_sent_at = Some(minutes(29));
    assert_eq!(carrier.probe(&message).unwrap().await, Probed::NotHappened);
    let mark: Value =
        reader.ask(&["GET", &format!("{{{stream}}}:seen:{}", message.wire_key())]).await;
    assert_eq!(mark, Value::BulkString(format!("!{:020}", message.fence.as_u64()).into_bytes()));
    let down = RedisStreamsCarrier::new(settings(&format!("redis://{}", nobody()), "s")).unwrap();
    assert!(matches!(down.probe(&message).unwrap().await, Probed::Silent(_)));
}
