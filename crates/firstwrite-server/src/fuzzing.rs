//! Fuzz targets for the bytes that operators give, as functions of bytes: see `fuzz/`. They panic where a rule does
//! not hold.

use crate::config::fuzzing::{config, store_url};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[("config", config), ("store_url", store_url)];
