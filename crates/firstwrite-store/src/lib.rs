//! Where firstwrite records live: one feature per store, `SQLite` by default.
//!
//! [`open`] gives a store by its address; [`SqliteStore`] is the embedded one, whose transactions a
//! handler can join; `PostgresStore` (feature `postgres`) is the reference. Nothing here decides anything: the protocol in `firstwrite-core` does, and the
//! conformance suite in `firstwrite-testkit` says what every store must do.
//!
//! This is the only crate with SQL or a driver.

pub mod doctor;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod encoding;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod inbox;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub use deadpool_postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use inbox::{Consumed, Inbox, InboxError};
pub use open::{Access, OpenError, open};
#[cfg(feature = "postgres")]
pub use postgres::{
    Ahead, ClearedDoubt, Doubt, Migrated, Pooler, PostgresOptions, PostgresStore, PostgresTx,
    SchemaName, dump, grants, migrate,
};
#[cfg(feature = "sqlx")]
pub use postgres::{SqlxPostgresStore, SqlxTx};
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(feature = "sqlite")]
pub use sqlite::{Clock, ForeignFile, SqliteOptions, SqliteStore, SqliteTx};
#[cfg(feature = "sqlx")]
pub use sqlx;
#[cfg(feature = "postgres")]
pub use tokio_postgres;
