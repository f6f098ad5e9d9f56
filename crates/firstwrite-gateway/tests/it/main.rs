//! The gateway from outside: real sockets on both sides of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asking;
mod client;
mod connections;
mod deploy;
mod failing_store;
mod framing;
mod gateway;
mod identity;
mod operator;
mod passing;
mod protected;
mod scrape;
mod secure;
mod telemetry;
mod upstream;
mod wire;
