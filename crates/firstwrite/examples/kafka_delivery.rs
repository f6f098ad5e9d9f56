//! Messages of an outbox, delivered to Kafka and read back: each once, and in their order.
//!
//! With a broker that has a topic of one partition: `KAFKA_SERVERS=127.0.0.1:9092 KAFKA_TOPIC=orders cargo
//! run -p firstwrite --features kafka --example kafka_delivery`. It writes two hundred messages of ten
//! customers to an outbox in a file, lets a worker deliver them, and compares what the topic has.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use firstwrite::carrier::kafka::{KafkaCarrier, KafkaSettings};
use firstwrite::outbox::{Outbox as _, Terms};
use firstwrite::store::SqliteStore;
use firstwrite::worker::{Deliver, Destination};
use firstwrite::{Key, Message, Tenant};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

type Anyhow<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MESSAGES: usize = 200;
const CUSTOMERS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Anyhow<()> {
    let given = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let servers = given("KAFKA_SERVERS", "127.0.0.1:9092");
    let topic = given("KAFKA_TOPIC", "orders");
    let folder = std::env::temp_dir().join(format!("kafka-delivery-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = SqliteStore::open_or_create(folder.join("outbox.db"))?;

    // Every run has keys of its own, so that a topic can be used again.
    let run = format!("{:08x}", fastrand::u32(..));
    let tenant = Tenant::new("acme")?;
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..MESSAGES {
        let (key, customer) =
            (format!("{run}-{number}"), format!("customer-{}", number % CUSTOMERS));
        let message =
            Message::new(&tenant, &Key::new(&key)?, "paid", "orders", key.clone().into())?;
        store.enqueue(&message.ordered_by(&customer)).await?;
        expected.entry(customer).or_default().push(key);
    }

    let carrier = Arc::new(KafkaCarrier::new(KafkaSettings::new(&servers, &topic))?);
    let terms = Terms { timeout: PATIENCE, ..Terms::default() };
    let destination = Destination::new("orders", terms, carrier);
    let counts = Deliver::new(Arc::new(store), vec![destination])?.run_until_idle().await?;
    println!("{counts:?}");

    let found = read(&servers, &topic, &run).await?;
    std::fs::remove_dir_all(&folder)?;
    if found != expected {
        return Err(format!("the topic has something else: {found:?}").into());
    }
    println!("{MESSAGES} messages, each once, those of each customer in their order");
    Ok(())
}

/// What the topic has of this run, by customer.
async fn read(servers: &str, topic: &str, run: &str) -> Anyhow<BTreeMap<String, Vec<String>>> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "kafka-delivery")
        .create()?;
    let (low, high) = consumer.fetch_watermarks(topic, 0, PATIENCE)?;
    let mut from_the_start = TopicPartitionList::new();
    from_the_start.add_partition_offset(topic, 0, Offset::Offset(low))?;
    consumer.assign(&from_the_start)?;
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for _ in low..high {
        let record = tokio::time::timeout(PATIENCE, consumer.recv()).await??.detach();
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (customer, key) = (text(record.key()), text(record.payload()));
        if key.starts_with(run) {
            found.entry(customer).or_default().push(key);
        }
    }
    Ok(found.into_iter().collect())
}
