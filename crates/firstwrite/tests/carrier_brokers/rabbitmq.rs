//! RabbitMQ.

use firstwrite::carrier::rabbitmq::{RabbitmqCarrier, RabbitmqSettings};
use firstwrite_core::outbox::{Carrier, Ending};
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use crate::claimed_message::{PAYLOAD, claimed_message};
use crate::{SHORT, check, name, nobody, provider_id, server};
use firstwrite_testkit::{Network, Proxy};

/// The other side: makes queues and reads them.
struct Broker {
    /// A channel lives as long as its connection.
    _connection: Connection,
    channel: Channel,
}

impl Broker {
    async fn new(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self { _connection: connection, channel }
    }

    async fn queue(&self, arguments: FieldTable) -> String {
        let name = name("orders");
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(name.as_str().into(), options, arguments).await.unwrap();
        name
    }

    async fn exchange(&self, queues: &[&str]) -> String {
        let name = name("shop");
        let (options, none) = (ExchangeDeclareOptions::default(), FieldTable::default());
        let exchange = name.as_str().into();
        self.channel
            .exchange_declare(exchange, ExchangeKind::Fanout, options, none.clone())
            .await
            .unwrap();
        for queue in queues {
            let (queue, exchange) = ((*queue).into(), name.as_str().into());
            let bound = self.channel.queue_bind(
                queue,
                exchange,
                "".into(),
                QueueBindOptions::default(),
                none.clone(),
            );
            bound.await.unwrap();
        }
        name
    }

    async fn next(&self, queue: &str) -> Option<BasicGetMessage> {
        let options = BasicGetOptions { no_ack: true };
        self.channel.basic_get(queue.into(), options).await.unwrap()
    }

    async fn count(&self, queue: &str) -> usize {
        let mut count = 0;
        while self.next(queue).await.is_some() {
            count += 1;
        }
        count
    }
}

/// A queue that refuses what does not fit.
fn of_one() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    arguments
}

fn carrier(mut settings: RabbitmqSettings) -> RabbitmqCarrier {
    settings.timeout = SHORT;
    RabbitmqCarrier::new(settings).unwrap()
}

#[tokio::test]
async fn a_message_is_confirmed_and_says_what_it_is() {
    let Some(url) = server("rabbitmq") else { return };
    let broker = Broker::new(&url).await;
    let queue = broker.queue(FieldTable::default()).await;
    let (carrier, claimed_message) =
        (carrier(RabbitmqSettings::to_queue(&url, &queue)), claimed_message());
    assert_eq!(provider_id(carrier.carry(&claimed_message).await), None);
    let message = broker.next(&queue).await.unwrap().delivery;
    assert_eq!(message.data, PAYLOAD);
    let properties = &message.properties;
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), claimed_message.wire_key());
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2), "it is written to disk");
    assert!(carrier.probe(&claimed_message).is_none());
}

#[tokio::test]
async fn many_at_once_are_all_confirmed() {
    let Some(url) = server("rabbitmq") else { return };
    let broker = Broker::new(&url).await;
    let queue = broker.queue(FieldTable::default()).await;
    let mut settings = RabbitmqSettings::to_queue(&url, &queue);
    settings.channel_max = 4;
    let carrier = std::sync::Arc::new(carrier(settings));
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let carrier = std::sync::Arc::clone(&carrier);
            tokio::spawn(async move { carrier.carry(&claimed_message()).await })
        })
        .collect();
    for task in tasks {
        provider_id(task.await.unwrap());
    }
    assert_eq!(broker.count(&queue).await, 40);
}

#[tokio::test]
async fn where_nothing_is_stored_it_is_tried_again() {
    let down = carrier(RabbitmqSettings::to_queue(format!("amqp://{}", nobody()), "orders"));
    check(&down.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    let Some(url) = server("rabbitmq") else { return };
    let broker = Broker::new(&url).await;
    let nowhere = carrier(RabbitmqSettings::to_queue(&url, name("nowhere")));
    check(&nowhere.carry(&claimed_message()).await, &Ending::Retry, "NO_ROUTE");
    check(&nowhere.carry(&claimed_message()).await, &Ending::Retry, "bind a queue");
    let missing = carrier(RabbitmqSettings::to_exchange(&url, name("missing"), "paid"));
    check(&missing.carry(&claimed_message()).await, &Ending::Retry, "no exchange");
    let stranger = url.replace("guest:guest", "guest:wrong");
    let stranger = carrier(RabbitmqSettings::to_queue(stranger, "orders"));
    check(&stranger.carry(&claimed_message()).await, &Ending::Retry, "cannot connect");
    let queue = broker.queue(FieldTable::default()).await;
    let exchange = broker.exchange(&[&queue]).await;
    let gone = carrier(RabbitmqSettings::to_exchange(&url, &exchange, "paid"));
    provider_id(gone.carry(&claimed_message()).await);
    let options = ExchangeDeleteOptions::default();
    broker.channel.exchange_delete(exchange.as_str().into(), options).await.unwrap();
    check(&gone.carry(&claimed_message()).await, &Ending::Retry, "no exchange");
    assert_eq!(broker.count(&queue).await, 1);
}

#[tokio::test]
async fn a_queue_that_does_not_take_it_is_certain_only_if_it_is_alone() {
    let Some(url) = server("rabbitmq") else { return };
    let broker = Broker::new(&url).await;
    let (small, large) = (broker.queue(of_one()).await, broker.queue(FieldTable::default()).await);
    let exchange = broker.exchange(&[&small, &large]).await;
    let both = carrier(RabbitmqSettings::to_exchange(&url, &exchange, "paid"));
    provider_id(both.carry(&claimed_message()).await);
    check(&both.carry(&claimed_message()).await, &Ending::Unknown, "not every queue");
    let alone = carrier(RabbitmqSettings::to_queue(&url, &small));
    check(&alone.carry(&claimed_message()).await, &Ending::Retry, "did not take it");
    assert_eq!((broker.count(&small).await, broker.count(&large).await), (1, 2));
}

#[tokio::test]
async fn a_lost_confirmation_is_unknown_and_the_next_message_connects_again() {
    let Some(url) = server("rabbitmq") else { return };
    let broker = Broker::new(&url).await;
    for network in [Network::AnswersLost, Network::CutAt("")] {
        let queue = broker.queue(FieldTable::default()).await;
        let proxy = Proxy::new(&url).await.unwrap();
        let carrier = carrier(RabbitmqSettings::to_queue(proxy.url(&url), &queue));
        provider_id(carrier.carry(&claimed_message()).await);
        proxy.set(network);
        check(&carrier.carry(&claimed_message()).await, &Ending::Unknown, "");
        proxy.set(Network::Up);
        provider_id(carrier.carry(&claimed_message()).await);
        assert_eq!(broker.count(&queue).await, 3, "nothing is sent again behind our back");
    }
}
