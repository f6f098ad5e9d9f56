//! Runs of firstwrite's own program that end badly on purpose, and the servers that they are run on.
//!
//! A tool of this repository, which nothing ships. `cargo xtask` is its command line. It uses no other crate of ours:
//! it builds the program, starts it, kills it and looks at it from outside.
//!
//! - Runs: [`crash`], [`failover`], [`histories`], [`demo_check`]. Clients load the demo over [`http`], and its books
//!   are compared with theirs.
//! - A bed for tests of clients: [`client_bed`], the demo behind a proxy that loses answers.
//! - Servers: [`postgres`], [`mariadb`] and [`redis`], each in a [`place`] of its own; installed by [`packages`],
//!   watched by a [`guard`].
//! - The rest: [`process`], [`clock`], `random`, [`args`], [`workspace`].
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "telling a person at a terminal what happens is what these runs are for"
)]

pub mod args;
pub mod client_bed;
mod clients;
pub mod clock;
pub mod crash;
pub mod demo;
pub mod demo_check;
mod engine;
pub mod failover;
pub mod guard;
pub mod histories;
pub mod http;
pub mod mariadb;
pub mod packages;
pub mod place;
pub mod postgres;
pub mod process;
mod random;
pub mod redis;
pub mod workspace;
