//! Addresses, for [`crate::fuzzing`].

use super::options::{Address, PostgresOptions};

pub(crate) fn address(text: &str) {
    drop(Address::parse(text, PostgresOptions::default()));
}
