//! Addresses, for [`crate::fuzzing`].

use super::options::Address;

pub(crate) fn address(text: &str) {
    drop(Address::parse(text));
}
