//! Fuzz targets for the bytes that servers send: see `fuzz/`. A target panics if a rule does not hold.

use crate::wire::fuzzing::answer;

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[("answer", answer)];
