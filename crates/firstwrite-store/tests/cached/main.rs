//! The cache in front of a store, with a real Redis that is killed, hung, flushed and lied to.
#![cfg(feature = "redis-cache")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "what was skipped")]

mod faults;
mod scene;
mod truth;
