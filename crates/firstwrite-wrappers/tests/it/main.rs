//! What the stores that wrap another promise beyond the conformance suite; `cached` has a binary of its own.
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]

mod breaker;
#[cfg(feature = "sealed")]
mod sealed;
