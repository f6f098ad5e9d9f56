//! The real binary, from outside: its command line, its demo over a socket, and what survives when
//! it is killed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod command_line;
mod crashes;
mod database;
mod demo_apart;
mod doctor;
mod faults;
mod gateway;
mod gateway_faults;
mod gateway_hangs_up;
mod gateway_kills;
mod gateway_limits;
mod gateway_memory;
mod gateway_promises;
mod gateway_sinks;
mod gateway_telemetry;
mod gateway_traces;
mod http;
mod keys;
mod logs;
mod messages;
mod migrate;
mod moving;
mod network;
mod open_records;
mod outbox;
mod outbox_settle;
mod paying;
mod payments;
mod problems;
mod process;
mod provider;
mod reconcile;
mod redis;
mod refunds;
mod retries;
mod scene;
mod settle;
mod stores;
mod upstream;
mod verify;
mod worker;
mod worker_delivers;
