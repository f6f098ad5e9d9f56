//! Stores for firstwrite records: one feature per store, `SQLite` by default.
//!
//! [`open`] opens a store by its address, and only [`create`] makes a new one. [`SqliteStore`] is the
//! embedded one, whose transactions a handler can join; `PostgresStore` (feature `postgres`) is the
//! reference; `MysqlStore` (feature `mysql`) is for MySQL and MariaDB; `DynamoStore` (feature `dynamodb`)
//! is for DynamoDB. Nothing here decides anything: the protocol in `firstwrite-core` does, and the
//! conformance suite in `firstwrite-testkit` says what every store must do.
//!
//! Stores in front of a store (encryption, a cache, a breaker, a move) are in `firstwrite-wrappers`.
//!
//! This is the only crate with SQL or a driver.

#[cfg(feature = "_address")]
mod address;
#[cfg(any(feature = "dynamodb", feature = "sqlite"))]
mod clock;
#[cfg(feature = "_sql")]
mod dispatcher;
pub mod doctor;
#[cfg(feature = "dynamodb")]
mod dynamo;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "_history")]
mod history_loss;
#[cfg(feature = "mysql")]
mod mysql;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "_sql", feature = "sqlite"))]
#[cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, unused_imports, unused_macros, reason = "each store uses its part")
)]
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "each store uses its part"))]
mod step_error;
#[cfg(feature = "_tls")]
mod tls;
#[cfg(any(feature = "_sql", feature = "dynamodb"))]
#[cfg_attr(not(feature = "_sql"), allow(dead_code, reason = "each store uses its part"))]
mod transactions;

#[cfg(feature = "redis")]
pub use self::redis::{AppendFsync, RedisOptions, RedisStore};
#[cfg(feature = "dynamodb")]
pub use aws_sdk_dynamodb;
#[cfg(feature = "postgres")]
pub use deadpool_postgres;
#[cfg(feature = "dynamodb")]
pub use dynamo::{DynamoOptions, DynamoStore, DynamoTx};
#[cfg(any(feature = "dynamodb", feature = "sqlite"))]
pub use firstwrite_core::Clock;
pub use firstwrite_core::{
    ClearedLoss, Consumed, HistoryClearance, HistoryLoss, Inbox, InboxError,
};
#[cfg(feature = "sqlite")]
pub use firstwrite_core::{ClockJump, Stopwatch};
#[cfg(feature = "mysql")]
pub use mysql::{MysqlOptions, MysqlStore, MysqlTx};
#[cfg(feature = "mysql")]
pub use mysql_async;
pub use open::{Access, Migrated, OpenError, create, is_compiled_in, open, open_within};
#[cfg(feature = "postgres")]
pub use postgres::{
    PipelinedBegin, Pooler, PostgresOptions, PostgresStore, PostgresTx, SchemaName,
};
#[cfg(feature = "sqlx")]
pub use postgres::{SqlxPostgresStore, SqlxTx};
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(feature = "sqlite")]
pub use sqlite::{ForeignFile, MissingFile, SqliteOptions, SqliteStore, SqliteTx};
#[cfg(feature = "sqlx")]
pub use sqlx;
#[cfg(feature = "postgres")]
pub use tokio_postgres;
