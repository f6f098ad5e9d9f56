//! Clients against the real demo, behind a proxy that loses answers: `cargo xtask client-bed`.
//!
//! Victims are this program again, started as processes of their own, so that they can be killed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod disk;
mod first_lines;
mod fleet;
mod foreign;
mod kills;
mod order;
mod transports;
mod victim;
