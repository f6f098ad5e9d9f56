//! The cache in front of a store, with a real Redis that is killed, hung, flushed and lied to.
#![cfg(feature = "redis-cache")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "what was skipped")]

mod faults;
#[cfg(feature = "postgres")]
mod postgres;
mod scene;
#[cfg(feature = "postgres")]
#[path = "../../../firstwrite-store/tests/postgres/server.rs"]
#[allow(dead_code, reason = "these tests use their part of it")]
mod server;
#[cfg(feature = "postgres")]
#[path = "../../../firstwrite-store/tests/postgres/subject.rs"]
#[allow(dead_code, reason = "these tests use their part of it")]
mod subject;
mod truth;
