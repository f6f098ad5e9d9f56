//! The provider over real HTTP: every behaviour, and what its ledger says afterwards.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod client;
mod control;
mod delays;
mod exports;
mod faults;
mod keys;
mod ledger;
mod outages;
mod plants;
mod receiver;
mod reports;
mod stand;
mod webhook_order;
mod webhooks;
