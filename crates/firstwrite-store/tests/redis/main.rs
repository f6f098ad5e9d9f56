//! The Redis store on real servers: the suite that defines a store, and what this one promises beyond it.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "seeds, reports and what was skipped")]

mod cluster;
mod conduct;
mod conformance;
mod damage;
mod faults;
mod history_loss;
mod indexes;
mod opening;
mod own;
mod server;
mod subject;
mod tls;
mod two_stores;
