//! Where firstwrite records live: one feature per store, `SQLite` by default.
//!
//! [`open`] gives a store by its address; [`SqliteStore`] is the embedded one, whose transactions a
//! handler can join. Nothing here decides anything: the protocol in `firstwrite-core` does, and the
//! conformance suite in `firstwrite-testkit` says what every store must do.
//!
//! This is the only crate with SQL or a driver.

mod open;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use open::{Access, OpenError, open};
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(feature = "sqlite")]
pub use sqlite::{Clock, ForeignFile, SqliteOptions, SqliteStore, SqliteTx};
