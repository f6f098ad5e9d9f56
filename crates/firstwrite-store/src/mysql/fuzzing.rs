//! Addresses, for [`crate::fuzzing`].

use super::options::{Address, MysqlOptions};

pub(crate) fn address(text: &str) {
    drop(Address::parse(text, MysqlOptions::default()));
}
