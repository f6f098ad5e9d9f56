//! Fuzz targets for what stores hold and core reads, as functions of bytes: see `fuzz/`. They panic where a rule
//! does not hold.

use crate::encoding::fuzzing::{stored_answers, stored_fingerprint, stored_outcome};
use crate::findings::fuzzing::document;

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("document", document),
    ("stored_answers", stored_answers),
    ("stored_fingerprint", stored_fingerprint),
    ("stored_outcome", stored_outcome),
];
