//! The gateway from outside: real sockets on both sides of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asking;
mod client;
mod connections;
mod cors;
mod cuts;
mod deploy;
mod floods;
mod frames;
mod framing;
mod gateway;
mod grpc;
mod http2;
mod http2_cases;
mod identity;
mod keys;
mod limits;
mod names;
mod noise;
mod operator;
mod passing;
mod payloads;
mod problems;
mod protected;
mod resets;
mod scrape;
mod secure;
mod server_errors;
mod slow;
mod strict;
mod targets;
mod telemetry;
mod tokens;
mod upgrades;
mod upstream;
mod wire;
