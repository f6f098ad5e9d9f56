//! Fuzzing of code that parses foreign bytes.
//!
//! A *target* is a function of bytes that panics if a rule does not hold: the parser does not panic, and a
//! parsed value is written back as it was read. `cargo fuzz` drives the targets of `fuzz/` with coverage, on
//! nightly; [`drive`] runs them without coverage, on stable, in every test run, from the same examples.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use firstwrite_core::{Fingerprint, FingerprintRules, Key, Parts, RecordId, Tenant};
use http::{HeaderMap, HeaderValue, Method};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// Targets for the parsers of `firstwrite-core`.
pub const TARGETS: &[Target] = &[("key", key), ("fingerprint", fingerprint)];

/// Default number of executions of each target: a second or less.
const EXECUTIONS: u64 = 3000;

/// Environment variable that overrides [`EXECUTIONS`].
const EXECUTIONS_SET: &str = "FIRSTWRITE_TEST_FUZZ";

/// No input is longer: what depends on size has limits of its own, with tests of their own.
const BYTES_MAX: usize = 4096;

/// Pieces that mean something to one reader or another.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b"=",
    b"%00",
    b"e9999",
    b"18446744073709551616",
    b"-0",
    b"\\ud800",
    b"..",
    b"://",
    b"@",
    b"?",
    b"&",
    b"#",
    b"'",
    b" ",
    b"\t",
];

/// Runs a target on its examples and on what becomes of them when they are cut, joined and changed. The seed of a
/// run that fails is in the panic, with the input.
pub fn drive((name, target): Target, examples: &[&[u8]]) {
    let executions = std::env::var(EXECUTIONS_SET)
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(EXECUTIONS);
    let seed = seed_of(name);
    let mut random = Rng::with_seed(seed);
    for count in 0..executions {
        let example = usize::try_from(count).ok().and_then(|place| examples.get(place));
        let input = match example {
            Some(example) => example.to_vec(),
            None => changed(&mut random, examples),
        };
        assert!(
            catch_unwind(AssertUnwindSafe(|| target(&input))).is_ok(),
            "{name}, execution {count} of seed {seed}: {:?}",
            input.escape_ascii().to_string()
        );
    }
}

/// The target of this name. There must be one: `fuzz/` names them.
pub fn named(targets: &[Target], name: &str) -> fn(&[u8]) {
    let found = targets.iter().find(|(known, _)| *known == name);
    found.expect("a target is among those of its crate").1
}

/// A seed of its own for each target, and the same in every run: a failure is there to stay.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xf157, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

fn changed(random: &mut Rng, examples: &[&[u8]]) -> Vec<u8> {
    let mut input = one_of(random, examples).map(<[u8]>::to_vec).unwrap_or_default();
    for _ in 0..=random.usize(..6) {
        let place = random.usize(..=input.len());
        match random.usize(..7) {
            0 if place < input.len() => input[place] ^= 1 << random.usize(..8),
            1 if place < input.len() => input[place] = random.u8(..),
            2 => input.truncate(place),
            3 => {
                let end = place + random.usize(..=input.len() - place);
                input.drain(place..end);
            }
            4 => {
                let other = one_of(random, examples).unwrap_or_default();
                let from = random.usize(..=other.len());
                input.truncate(place);
                input.extend_from_slice(&other[from..]);
            }
            5 => {
                let end = place + random.usize(..=input.len() - place);
                let piece = input[place..end].to_vec();
                input.splice(place..place, piece);
            }
            _ => {
                let piece = one_of(random, PIECES).unwrap_or_default();
                input.splice(place..place, piece.iter().copied());
            }
        }
        input.truncate(BYTES_MAX);
    }
    input
}

fn one_of<'a>(random: &mut Rng, all: &[&'a [u8]]) -> Option<&'a [u8]> {
    if all.is_empty() { None } else { all.get(random.usize(..all.len())).copied() }
}

/// The header that carries a key: what is read is the same key in every spelling of it.
fn key(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(key) = Key::parse(text)
    {
        assert!((1..=255).contains(&key.as_str().len()), "a key of no or too many bytes");
        assert_eq!(Key::new(key.as_str()).ok().as_ref(), Some(&key), "read twice");
        let written = key.to_header_value();
        let again = written.to_str().ok().and_then(|text| Key::parse(text).ok());
        assert_eq!(again.as_ref(), Some(&key), "written and read again");
    }
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let mut headers = HeaderMap::new();
        headers.append("idempotency-key", value);
        drop(Key::from_headers(&headers));
    }
}

/// Checks that the fingerprint of a request is the same each time it is computed, whatever the body is.
fn fingerprint(bytes: &[u8]) {
    let (Ok(tenant), Ok(key)) = (Tenant::new("acme"), Key::new("order-1")) else { return };
    let id = RecordId::of(&tenant, &key);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let taken = || {
        let parts = Parts {
            method: &Method::POST,
            authority: "api.example",
            path: "/payments",
            query: Some("a=1"),
            headers: &headers,
            body: bytes,
        };
        Fingerprint::of(&parts, &FingerprintRules::default(), None, &id)
    };
    assert_eq!(taken(), taken(), "taken twice");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "execution 1 of seed")]
    fn a_target_that_fails_is_told_with_its_input() {
        drive(("short", |bytes| assert!(bytes.len() < 3)), &[b"ab", b"abc"]);
    }
}
