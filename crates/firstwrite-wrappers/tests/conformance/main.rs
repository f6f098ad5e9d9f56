//! The suite that defines a store, run on the stores that wrap another, and what holds while records move.
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "seeds, reports and what was skipped")]

mod moving;
#[path = "../../../firstwrite-store/tests/conformance/sqlite.rs"]
mod sqlite;
mod wrappers;
