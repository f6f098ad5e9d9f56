//! The HTTP carrier against servers on loopback.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had ends the test")]

mod broken;
mod connections;
mod encrypted;
mod endings;
mod guarded;
mod probes;
mod provider;
mod quiet;
mod requests;
