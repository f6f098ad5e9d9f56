#![no_main]

use firstwrite_testkit::fuzz::named;
use firstwrite_core::fuzzing::TARGETS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| named(TARGETS, "stored_fingerprint")(bytes));
