//! Clients in a scripted world: their storage is memory, their time is turned by hand, and the server says what a test
//! wants it to say.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod crashes;
mod credentials;
mod crossings;
#[cfg(feature = "sqlite")]
mod damage;
mod doubt;
mod ends;
mod fleet;
mod input;
mod lanes;
mod opening;
mod panics;
mod places;
mod queue;
mod status;
mod storages;
mod waiting;
mod world;
