//! The PostgreSQL store on a real server: the suite that defines a store, and what this one promises
//! beyond it.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "seeds, reports and what was skipped")]

mod batching;
mod conformance;
mod doctor;
mod faults;
mod history_loss;
mod inbox;
mod lost_history;
mod memory;
mod outbox;
mod own;
mod rivals;
mod server;
mod setup;
#[cfg(feature = "sqlx")]
mod sqlx;
mod subject;
mod tls;
mod transactions;
mod upkeep;
