//! The DynamoDB store on emulators: the suite that defines a store, and what this one promises beyond it.
#![cfg(feature = "dynamodb")]
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "seeds, reports and what was skipped")]

mod answers;
mod conformance;
mod emulator;
mod expiry;
mod faults;
mod handlers;
mod inbox;
mod large;
mod outbox;
mod setup;
mod subject;
