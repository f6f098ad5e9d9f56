//! Clients at work: what they send, what they know, and whether the service's books agree with it.
//!
//! The load of `cargo xtask crash` and `cargo xtask failover`: many threads pay, lose their connection and
//! try again with the same key; in the end every key must have one payment and one answer.

pub(crate) mod books;
pub(crate) mod effects;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod report;
#[cfg(test)]
pub(crate) mod stand_in;
