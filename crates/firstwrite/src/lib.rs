//! Safe retries for Rust services: the first write under a key wins, and every retry gets the first
//! answer.
//!
//! A client cannot tell whether a request that changes something was carried out when the
//! connection drops, so it sends it again. With [`IdempotencyLayer`] around a service, it names the
//! action in an `Idempotency-Key` header and may send it as often as it likes. For a key,
//!
//! 1. the first request is *fresh*: its key is reserved, durably, and the handler runs;
//! 2. once its answer is known, the same request is a *replay*: it gets the first answer, marked
//!    `Idempotent-Replayed: true`, until the time in `Idempotency-Expires`;
//! 3. a different request is a *mismatch*: it is refused, whether or not the first has ended;
//! 4. while the first is *in progress*, the same request is told when to come back, or waits;
//! 5. if it is unknown how the first ended, the key is *uncertain*, and nothing runs until that is resolved;
//! 6. a 5xx, 408, 425 or 429 means "not now", and a 401, 407, 421 or 431 that nothing ran: it is passed on,
//!    and the key is free again.
//!
//! A refusal is an `application/problem+json` document with a stable `code`, and says whether a
//! retry can succeed and whether a new key is safe. Without the store, the answer is a 503 and
//! nothing runs.
//!
//! The tenant decides whose keys meet: put the layer inside of authentication, and see
//! [`IdempotencyLayer::tenant_from`]. Without a tenant, requests are refused. Behind a proxy, set
//! the layer's cap on bodies below the proxy's own, so that a refusal is ours to explain.
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::{Router, body::Body, routing::post};
//! use firstwrite::{IdempotencyLayer, Tenant, memory_store};
//! use http::{Request, StatusCode};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = IdempotencyLayer::new(Arc::new(memory_store()))
//!     .single_tenant(Tenant::new("acme")?);
//! let app: Router = Router::new()
//!     .route("/payments", post(|| async { (StatusCode::CREATED, "paid") }))
//!     .layer(layer);
//!
//! let pay = |amount: u32| {
//!     Request::post("/payments")
//!         .header("idempotency-key", "order-1")
//!         .header("content-type", "application/json")
//!         .body(Body::from(format!("{{\"amount\":{amount}}}")))
//! };
//! let first = app.clone().oneshot(pay(1200)?).await?;
//! assert_eq!(first.status(), StatusCode::CREATED);
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//!
//! let replay = app.clone().oneshot(pay(1200)?).await?;
//! assert_eq!(replay.status(), StatusCode::CREATED);
//! assert_eq!(replay.headers()["idempotent-replayed"], "true");
//!
//! let mismatch = app.clone().oneshot(pay(9900)?).await?;
//! assert_eq!(mismatch.status(), StatusCode::UNPROCESSABLE_ENTITY);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | brings |
//! | --- | --- |
//! | `axum` (default) | [`Attempt`], [`Atomic`] and [`Transaction`] as extractors; answers of any type that axum sends |
//! | **stores** | |
//! | `sqlite` (default) | `SqliteStore`: one file, one process that writes; atomic by [`Atomic`] |
//! | `postgres` | `PostgresStore`: PostgreSQL by tokio-postgres; atomic by [`Transaction`] |
//! | `sqlx` | `SqlxPostgresStore`: the same over an sqlx pool of the application; enables `postgres` |
//! | `mysql` | `MysqlStore`: MySQL and MariaDB; atomic by [`Transaction`] |
//! | `dynamodb` | `DynamoStore`: DynamoDB; atomic by [`Transaction`] |
//! | `redis-store` | `RedisStore`: Redis and Valkey; no atomic handlers, no messages |
//! | **around any store** | |
//! | `sealed` | `SealedStore`: outcomes encrypted at rest |
//! | `redis-cache` | `CachedStore`: a cache of completed outcomes in Redis |
//! | **after the commit** | |
//! | `outbox` | `worker::Deliver`, `carrier`, `reconcile`: deliver messages, and compare with what providers say |
//! | **destinations of messages**, each with `outbox` | |
//! | `http-destination` | `carrier::http`: HTTP APIs and webhooks |
//! | `nats` | `carrier::nats`: NATS JetStream |
//! | `rabbitmq` | `carrier::rabbitmq`: RabbitMQ, with publisher confirms |
//! | `kafka` | `carrier::kafka`: Kafka, by librdkafka |
//! | `redis-streams` | `carrier::redis_streams`: Redis streams |
//! | **reconciliation** | |
//! | `csv` | `reconcile`: a provider's records from CSV exports; enables `outbox` |
//!
//! Features that begin with `_`, `crash-points` and `fuzzing` are private to this repository.
//!
//! See also: [`Atomic`] and [`Transaction`], for handlers whose rows, messages and outcome share one commit;
//! [`Policies`] and [`Policy`], for the settings of each operation; [`IdempotencyLayer::check_routes`], which
//! fails at start-up if a route was forgotten; [`worker`], whose loops maintain the store. `service.rs` documents the steps of a
//! request, in order.

pub use firstwrite_core::{
    AfterRetention, BodyForm, BoxError, Effect, Fence, FingerprintRules, HeaderPolicy,
    HeldMemoryTx, Interim, KeptStatuses, Key, KeyError, KeyRequirement, MemoryStore, MemoryTx,
    Message, MessageError, Mode, OnConflict, OnLostAnswer, OnServerError, Outcome, Pointer, Policy,
    PolicyError, ProblemBase, ProblemBaseError, RecordId, Rejection, RejectionKind, RespondAsync,
    Secret, SecretError, Secrets, Store, StoreError, Tenant, TenantError, Timestamp,
};

mod atomic;
mod attempt;
mod body;
#[cfg(feature = "outbox")]
pub mod carrier;
mod coalesce;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interim;
mod layer;
mod lease;
mod lines;
mod observe;
pub mod outbox;
mod policies;
#[cfg(feature = "outbox")]
mod probe;
mod problems;
#[cfg(feature = "outbox")]
pub mod reconcile;
mod reserved;
mod respond;
mod routes;
mod service;
mod status;
pub mod store;
pub mod store_author;
#[doc(hidden)]
pub mod strict_json;
mod tenant;
mod withdrawal;
pub mod worker;

pub use atomic::{Atomic, AtomicAnswer, AtomicStore, ExtractorError, Transaction};
pub use attempt::Attempt;
pub use body::{RequestBody, ResponseBody, Room};
pub use firstwrite_core::codec::percent::escape_path;
#[doc(hidden)]
pub use firstwrite_wrappers::Seldom;
pub use layer::{IdempotencyLayer, PolicyMismatch};
pub use observe::{
    AdmitContext, Observer, RecordChange, RecordStep, RequestFinished, RequestResult,
};
pub use policies::{Operation, Policies, PolicyResolver};
#[cfg(feature = "outbox")]
pub use probe::ProbeForm;
pub use respond::{
    ATTEMPT_TRACEPARENT, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_INTERIM, IDEMPOTENCY_OUTCOME,
    IDEMPOTENT_REPLAYED, json,
};
pub use routes::UncoveredRoutes;
pub use service::Idempotency;
pub use tenant::TenantResolver;
pub use worker::Worker;

/// The README's examples are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// An answer of a protected service, and of an atomic handler.
pub type Response = http::Response<ResponseBody>;

/// A store in memory on the system's clock, for examples and tests.
pub fn memory_store() -> MemoryStore {
    MemoryStore::new(|| {
        #[expect(clippy::disallowed_methods, reason = "this store's clock is the system's")]
        let now = std::time::SystemTime::now();
        let since_epoch = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::EPOCH.plus(since_epoch)
    })
}
