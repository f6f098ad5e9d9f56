//! The shop that every variant keeps: its tables, its orders, and what must be there at the end.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use deadpool_postgres::ClientWrapper;
use firstwrite_core::{
    BodyForm, Fingerprint, Key, Message, PartDigests, RecordId, Request, Tenant,
};
use http::{Response, StatusCode};

use crate::rounds::{Server, as_f64};

/// The schema of the store.
pub(crate) const RECORDS: &str = "golden_records";

/// One variant's tables, statements and count. Its own schema, so that rows are there or missing for
/// this variant, and no variant pays for the indexes of another.
pub(crate) struct Shop {
    pub(crate) schema: String,
    /// What tells its records and messages from those of others in the store.
    tenant: Tenant,
    pub(crate) order: String,
    pub(crate) message: String,
    pub(crate) reserve: String,
    pub(crate) complete: String,
    served: AtomicU64,
}

/// What a client orders.
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) amount: i64,
}

impl Shop {
    pub(crate) fn new(name: &str) -> Self {
        let schema = schema_of(name);
        Self {
            tenant: Tenant::new(&schema).expect("a name"),
            order: format!(
                "INSERT INTO {schema}.orders (customer, amount) VALUES ($1, $2) RETURNING id"
            ),
            message: format!("INSERT INTO {schema}.outbox (topic, payload) VALUES ($1, $2)"),
            reserve: format!(
                "INSERT INTO {schema}.keys (tenant, key, state) VALUES ($1, $2, 'started')
                 ON CONFLICT DO NOTHING"
            ),
            complete: format!(
                "UPDATE {schema}.keys SET state = 'completed', response = $3
                 WHERE tenant = $1 AND key = $2"
            ),
            served: AtomicU64::new(0),
            schema,
        }
    }

    /// What an application has: orders, a plain outbox, and keys as one would keep them by hand.
    pub(crate) async fn create(server: &Server, name: &str) {
        let schema = schema_of(name);
        server
            .execute(&format!(
                "DROP SCHEMA IF EXISTS {schema} CASCADE;
                 CREATE SCHEMA {schema};
                 CREATE TABLE {schema}.orders (
                     id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                     customer text NOT NULL, amount bigint NOT NULL);
                 CREATE TABLE {schema}.outbox (
                     id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                     topic text NOT NULL, payload bytea NOT NULL,
                     created_at timestamptz NOT NULL DEFAULT now());
                 CREATE TABLE {schema}.keys (
                     tenant text NOT NULL, key text NOT NULL, state text NOT NULL, response bytea,
                     created_at timestamptz NOT NULL DEFAULT now(),
                     PRIMARY KEY (tenant, key))"
            ))
            .await;
    }

    /// Inserts an order and waits for its number, as every handler here does.
    pub(crate) async fn insert_order(&self, client: &ClientWrapper, order: &Order) -> i64 {
        let statement = client.prepare_cached(&self.order).await.expect("a statement");
        let row = client.query_one(&statement, &[&order.customer, &order.amount]).await;
        row.expect("an order is written").get(0)
    }

    pub(crate) fn request(&self) -> Request {
        let (tenant, key) = (self.tenant.clone(), Key::new(&uuid()).expect("a key"));
        let mut digest = [0; 32];
        fastrand::fill(&mut digest);
        let parts = PartDigests::from_bytes(&fastrand::u64(..).to_be_bytes()).expect("four parts");
        Request {
            id: RecordId::of(&tenant, &key),
            tenant,
            key,
            operation: "POST /orders".into(),
            fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
        }
    }

    pub(crate) fn tenant(&self) -> &str {
        self.tenant.as_str()
    }

    pub(crate) fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether every request that was answered has left its rows, and nothing else has.
    pub(crate) async fn check(&self, server: &Server) {
        let (schema, served) = (&self.schema, as_f64(self.served.load(Ordering::Relaxed)));
        let count = async |table: &str| {
            server.number(&format!("SELECT count(*)::float8 FROM {table}")).await
        };
        let orders = count(&format!("{schema}.orders")).await;
        let outbox = count(&format!("{schema}.outbox")).await;
        let keys = count(&format!("{schema}.keys WHERE state = 'completed'")).await;
        let all_keys = count(&format!("{schema}.keys")).await;
        let ours = format!("WHERE tenant = '{schema}'");
        let records = count(&format!("{RECORDS}.standing {ours} AND state = 'completed'")).await;
        let messages = count(&format!("{RECORDS}.messages {ours}")).await;
        let found = [orders, outbox + messages, keys, all_keys, records];
        let expected = match schema.as_str() {
            "golden_a" => [served, 0.0, 0.0, 0.0, 0.0],
            name if name.starts_with("golden_b") => [served, served, 0.0, 0.0, 0.0],
            "golden_c" => [served, served, served, served, 0.0],
            _ => [served, served, 0.0, 0.0, served],
        };
        let is_same = found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 0.5);
        assert!(is_same, "{schema}: {found:?} where {expected:?} belong");
        assert!(served > 0.0, "{schema} was measured");
    }
}

impl Order {
    pub(crate) fn new() -> Self {
        let customer = format!("acct_{:06}", fastrand::u32(..1_000_000));
        Self { customer, amount: fastrand::i64(1..100_000) }
    }

    /// About 200 bytes for whoever packs it.
    pub(crate) fn payload(&self, id: i64) -> Bytes {
        let Self { customer, amount } = self;
        let text = format!(
            r#"{{"event":"order.placed","order":{id},"customer":"{customer}","amount":{amount},"currency":"EUR","trace":"{}","items":[{{"sku":"{:016x}","count":1}},{{"sku":"{:016x}","count":2}}]}}"#,
            uuid(),
            fastrand::u64(..),
            fastrand::u64(..),
        );
        Bytes::from(text)
    }

    /// A message of ours with that payload.
    pub(crate) fn message(&self, request: &Request, id: i64) -> Message {
        let Request { tenant, key, .. } = request;
        Message::new(tenant, key, "pack", "warehouse", self.payload(id)).expect("a message")
    }

    /// The answer, about 300 bytes.
    pub(crate) fn response(&self, id: i64) -> Response<Bytes> {
        let Self { customer, amount } = self;
        let text = format!(
            r#"{{"id":{id},"object":"order","customer":"{customer}","amount":{amount},"currency":"EUR","status":"placed","payment":"{}","shipment":"{}","receipt":"{}","links":{{"self":"/orders/{id}","invoice":"/orders/{id}/invoice"}},"livemode":true,"refunded":false}}"#,
            uuid(),
            uuid(),
            uuid(),
        );
        Response::builder()
            .status(StatusCode::CREATED)
            .header("content-type", "application/json")
            .body(Bytes::from(text))
            .expect("a plain answer")
    }
}

/// A name that can stand in SQL: `d'` and `d"` are `golden_d1` and `golden_d2`.
fn schema_of(name: &str) -> String {
    let head = name.split(' ').next().unwrap_or_default();
    let plain = head.replace('\'', "1").replace('"', "2");
    let driver = if name == crate::B_SQLX { "_sqlx" } else { "" };
    format!("golden_{plain}{driver}")
}

/// A random UUID in its canonical spelling.
pub(crate) fn uuid() -> String {
    let hex = format!("{:032x}", fastrand::u128(..));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
