//! The layer as a tower service: a mock inner service, a store that is watched, a paused clock.

mod attempts;
mod bodies;
mod doubts;
mod early;
mod harness;
mod keys;
mod new_keys;
mod observing;
mod pages;
mod same_key;
mod same_request;
mod secrets;
mod status;
mod waiting;
pub(crate) mod watched;
