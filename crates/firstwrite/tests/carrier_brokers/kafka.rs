//! Kafka, on the mock cluster of the client library: a test double that speaks the protocol.

use std::time::Duration;

use firstwrite::carrier::kafka::{KafkaCarrier, KafkaSettings};
use firstwrite_core::outbox::{Carrier, Ending};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};

use crate::claimed_message::{PAYLOAD, claimed_message};
use crate::{SHORT, check, nobody, provider_id};

const TOPIC: &str = "orders";

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// One broker with one partition.
fn cluster() -> Cluster {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    cluster
}

fn carrier(servers: &str) -> KafkaCarrier {
    let mut settings = KafkaSettings::new(servers, TOPIC);
    settings.timeout = SHORT;
    KafkaCarrier::new(settings).unwrap()
}

/// The first `count` records of the topic, and whether there is another.
async fn read(cluster: &Cluster, count: usize) -> (Vec<OwnedMessage>, bool) {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "test")
        .create()
        .unwrap();
    let mut from_the_start = TopicPartitionList::new();
    from_the_start.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
    consumer.assign(&from_the_start).unwrap();
    let mut records = Vec::new();
    while records.len() < count {
        records.push(consumer.recv().await.unwrap().detach());
    }
    let (_, end) = consumer.fetch_watermarks(TOPIC, 0, SHORT).unwrap();
    (records, usize::try_from(end).unwrap() > count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_stored_and_says_what_it_is() {
    let cluster = cluster();
    let carrier = carrier(&cluster.bootstrap_servers());
    let (first, mut second) = (claimed_message(), claimed_message());
    second.ordering_key = Some("customer-7".to_owned());
    assert_eq!(provider_id(carrier.carry(&first).await).unwrap(), "orders/0@0");
    assert_eq!(provider_id(carrier.carry(&second).await).unwrap(), "orders/0@1");
    let (records, is_more) = read(&cluster, 2).await;
    assert!(!is_more);
    assert_eq!(records[0].payload(), Some(PAYLOAD));
    assert_eq!(records[0].key(), Some(first.wire_key().as_bytes()));
    assert_eq!(records[1].key(), Some(&b"customer-7"[..]));
    let headers = records[1].headers().unwrap();
    let header = |at| (headers.get(at).key.to_owned(), headers.get(at).value.unwrap().to_vec());
    assert_eq!(header(0), ("Idempotency-Key".to_owned(), second.wire_key().into_bytes()));
    assert_eq!(header(1), ("content-type".to_owned(), b"application/json".to_vec()));
    assert!(carrier.probe(&first).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_client_repeats_is_stored_once() {
    let cluster = cluster();
    let carrier = carrier(&cluster.bootstrap_servers());
    let errors = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
    ];
    cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    assert_eq!(provider_id(carrier.carry(&claimed_message()).await).unwrap(), "orders/0@0");
    assert!(!read(&cluster, 1).await.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_will_not_have_is_refused() {
    let cluster = cluster();
    let carrier = carrier(&cluster.bootstrap_servers());
    for (error, detail) in [
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "too large"),
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "authorization failed"),
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        check(&carrier.carry(&claimed_message()).await, &Ending::Refused, detail);
    }
    let mut large = claimed_message();
    large.payload = vec![b'x'; 1024 * 1024].into();
    check(&carrier.carry(&large).await, &Ending::Refused, "too large");
    assert_eq!(provider_id(carrier.carry(&claimed_message()).await).unwrap(), "orders/0@0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_broker_can_take_it_it_is_tried_again() {
    let down = carrier(&nobody());
    check(&down.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    let cluster = cluster();
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error(TOPIC, unknown).unwrap();
    let carrier = carrier(&cluster.bootstrap_servers());
    check(&carrier.carry(&claimed_message()).await, &Ending::Retry, "the topic `orders`");
    cluster.topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    assert_eq!(provider_id(carrier.carry(&claimed_message()).await).unwrap(), "orders/0@0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_is_unknown_at_first_and_then_certain() {
    let cluster = cluster();
    let carrier = carrier(&cluster.bootstrap_servers());
    provider_id(carrier.carry(&claimed_message()).await);
    cluster.broker_down(1).unwrap();
    check(&carrier.carry(&claimed_message()).await, &Ending::Unknown, "timed out");
    check(&carrier.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    cluster.broker_up(1).unwrap();
    assert_eq!(provider_id(carrier.carry(&claimed_message()).await).unwrap(), "orders/0@1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_that_is_late_is_unknown() {
    let cluster = cluster();
    let carrier = carrier(&cluster.bootstrap_servers());
    provider_id(carrier.carry(&claimed_message()).await);
    cluster.broker_round_trip_time(1, Duration::from_mins(1)).unwrap();
    check(&carrier.carry(&claimed_message()).await, &Ending::Unknown, "timed out");
}
