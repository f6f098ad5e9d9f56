//! What the `SQLite` store promises beyond the conformance suite: its file, its shared commits, other
//! people's closures, and what happens when there is no room or a row is damaged.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]

mod closures;
mod damage;
mod file;
mod full;
mod group_commit;
mod host_clock;
mod inbox;
mod lost_file;
mod outbox;
mod postgres_functions;
mod records;
mod shop;
