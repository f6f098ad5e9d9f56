//! Addresses and records, for [`crate::fuzzing`].

use firstwrite_core::RecordId;

use super::options::{Address, RedisOptions};
use super::record;

pub(crate) fn address(text: &str) {
    drop(Address::parse(text, RedisOptions::default()));
}

/// Decodes a value of the server: a record, an audit entry, or the head of a record that a walk reads.
pub(crate) fn redis_record(bytes: &[u8]) {
    drop(record::decode(RecordId::from_bytes([7; 16]), bytes));
    drop(record::decode_audit(bytes));
    drop(record::count(bytes, 7));
}
