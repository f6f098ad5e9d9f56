//! The MySQL store on real servers: the suite that defines a store, and what this one promises beyond it.
#![cfg(feature = "mysql")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "seeds, reports and what was skipped")]

mod batching;
mod conformance;
mod doctor;
mod faults;
mod galera;
mod history_loss;
mod hosts;
mod inbox;
mod lost_history;
mod own;
mod server;
mod setup;
mod subject;
mod tls;
mod transactions;
mod upkeep;
