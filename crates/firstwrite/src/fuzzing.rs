//! Parsers of untrusted input, as functions of bytes: see `fuzz/`. They panic where a rule does not hold.

use crate::reconcile::fuzzing::csv;
use crate::strict_json;

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[("csv", csv), ("strict_json", json)];

/// JSON without duplicate names.
fn json(bytes: &[u8]) {
    let read = strict_json::parse(bytes).is_some();
    assert!(!read || serde_json::from_slice::<serde_json::Value>(bytes).is_ok(), "it is no JSON");
}
