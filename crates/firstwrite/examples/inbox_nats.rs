//! A consumer of NATS `JetStream` whose every message takes effect once, however often it is delivered.
//!
//! `nats-server -js`, then `cargo run -p firstwrite --features nats --example inbox_nats`, with the address
//! in `NATS_URL` unless it is the usual one. It publishes ten events, consumes them, and acts as if it
//! had died between its commit and its acknowledgement of every third: those come again.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, AckKind, Message, stream};
use firstwrite::store::rusqlite::Connection;
use firstwrite::store::{Consumed, Inbox, SqliteStore};
use futures_util::StreamExt as _;

type Anyhow<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How often something was delivered.
    pub(crate) deliveries: u64,
    /// How many of these had been consumed before.
    pub(crate) again: u64,
    /// How many rows the events left.
    pub(crate) rows: i64,
}

const EVENTS: u64 = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Anyhow<()> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let folder = std::env::temp_dir().join(format!("inbox-nats-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let seen = run(&url, &folder.join("ledger.db")).await?;
    println!(
        "{} deliveries of {EVENTS} events; {} came again and changed nothing; {} rows",
        seen.deliveries, seen.again, seen.rows
    );
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Publishes and consumes, with the consumer's rows in the file at `path`.
pub(crate) async fn run(url: &str, path: &std::path::Path) -> Anyhow<Seen> {
    let store = SqliteStore::open_or_create(path)?;
    let table = "CREATE TABLE IF NOT EXISTS settled (payment TEXT NOT NULL)";
    store.write(move |tx| tx.execute_batch(table)).await?;

    let jetstream = jetstream::new(async_nats::connect(url).await?);
    let name = format!("payments-{:08x}", fastrand::u32(..));
    let subjects = vec![name.clone()];
    let stream = jetstream
        .create_stream(stream::Config { name: name.clone(), subjects, ..Default::default() })
        .await?;
    for number in 0..EVENTS {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("order-{number}:settled"));
        let payload = format!("pay_{number}");
        jetstream.publish_with_headers(name.clone(), headers, payload.into()).await?.await?;
    }

    let config = pull::Config { ack_policy: AckPolicy::Explicit, ..Default::default() };
    let consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.messages().await?;
    // Longer than any redelivery of this stream: messages are delivered again for as long as they are
    // kept, and this one keeps them for ever, so a month is a choice.
    let inbox = Inbox::new("payments")?.kept_for(Duration::from_hours(30 * 24));
    let mut seen = Seen::default();
    while seen.deliveries - seen.again < EVENTS || seen.again < EVENTS / 3 {
        let Some(message) = messages.next().await else { break };
        let message = message?;
        seen.deliveries += 1;
        match consume(&store, &inbox, &message).await? {
            // As if it had died here, with the commit done and the acknowledgement not sent.
            Consumed::First if seen.deliveries.is_multiple_of(3) => {
                message.ack_with(AckKind::Nak(None)).await?;
            }
            Consumed::First => message.ack().await?,
            Consumed::Again { .. } => {
                seen.again += 1;
                message.ack().await?;
            }
        }
    }
    let count = |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM settled", [], |row| row.get(0))
    };
    seen.rows = store.read(count).await?;
    jetstream.delete_stream(name).await?;
    store.close().await;
    Ok(seen)
}

/// Notes the message and does what follows from it, in one transaction.
async fn consume(store: &SqliteStore, inbox: &Inbox, message: &Message) -> Anyhow<Consumed> {
    let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
    let id = id.ok_or("a message without an id")?.to_string();
    let payment = String::from_utf8(message.payload.to_vec())?;
    let inbox = inbox.clone();
    let work = move |tx: &Connection| {
        let consumed = SqliteStore::consume(&inbox, &id, tx);
        if let Ok(Consumed::First) = consumed {
            tx.execute("INSERT INTO settled (payment) VALUES (?1)", [payment])?;
        }
        Ok(consumed)
    };
    Ok(store.write(work).await??)
}
