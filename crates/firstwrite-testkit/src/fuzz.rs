//! Fuzzing of code that parses foreign bytes.
//!
//! A *target* is a function of bytes that panics if a rule does not hold: the parser does not panic, and a
//! parsed value is written back as it was read. `cargo fuzz` drives the targets of `fuzz/` with coverage, on
//! nightly; [`drive`] runs them without coverage, on stable, in every test run, from the same examples.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use firstwrite_core::{
    BodyForm, Comparison, Fingerprint, FingerprintRules, Key, PartDigests, Parts, Pointer,
    RecordId, Secrets, Tenant,
};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
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
/// run that fails is in the panic, with the input. The short form gives the same inputs in every run; a long one,
/// whose length is set, gives others in each.
pub fn drive((name, target): Target, examples: &[&[u8]]) {
    let set = std::env::var(EXECUTIONS_SET).ok().and_then(|count| count.parse().ok());
    let fresh = set.map_or(0, |_executions: u64| crate::seed());
    let (executions, seed) = (set.unwrap_or(EXECUTIONS), seed_of(name) ^ fresh);
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

/// A seed of its own for each target, and the same in every run of the short form: a failure is there to stay.
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

/// A request: a line with its content type, a bar and its content encoding, then the body. Its fingerprint is the
/// same each time, in every spelling of the content type, and another one for another boundary.
fn fingerprint(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let (head, body) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut words = head.splitn(2, |byte| *byte == b'|');
    let [content_type, encoding] = [words.next(), words.next()]
        .map(|word| HeaderValue::from_bytes(word.unwrap_or_default()).ok());
    let (Some(content_type), Some(encoding)) = (content_type, encoding) else { return };
    let taken = Taken { body, encoding };
    let first = taken.of(&content_type);
    assert_eq!(first, taken.of(&content_type), "taken twice");
    assert_eq!(first[1].compare(&first[2]), Comparison::Same, "taken like itself, by version 1");
    let Ok(text) = content_type.to_str() else { return };
    let (essence, parameters) = text.split_at(text.find(';').unwrap_or(text.len()));
    let spelt = format!(" {} {parameters}", essence.to_ascii_uppercase());
    if is_type(essence) && has_tokens(parameters) {
        assert_eq!(first[0], taken.of_text(&spelt)[0], "spelt in another way");
        assert_ne!(first[0], taken.of_text(&format!("{text};boundary=a"))[0], "another boundary");
        assert_ne!(
            taken.of_text(&format!("{text};boundary=a"))[0],
            taken.of_text(&format!("{text};boundary=ab"))[0],
            "a longer boundary"
        );
    }
    if first[0].form() == BodyForm::Canonical {
        let spaced = [body, b" "].concat();
        let again = Taken { body: &spaced, ..taken.clone() }.of(&content_type);
        assert_eq!(first[0], again[0], "white space behind a document");
        assert_eq!(first[3], again[3], "white space, by rules");
    }
}

/// A request whose content type is to be told.
#[derive(Clone)]
struct Taken<'a> {
    body: &'a [u8],
    encoding: HeaderValue,
}

impl Taken<'_> {
    /// Its fingerprints: as it is, twice as version 1 took it, and by rules that select and ignore parts.
    fn of(&self, content_type: &HeaderValue) -> [Fingerprint; 4] {
        let tenant = Tenant::new("acme").expect("a tenant");
        let id = RecordId::of(&tenant, &Key::new("order-1").expect("a key"));
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, content_type.clone()),
            (CONTENT_ENCODING, self.encoding.clone()),
        ]);
        let parts = Parts {
            method: &Method::POST,
            authority: "api.example",
            path: "/payments",
            query: Some("a=1"),
            headers: &headers,
            body: self.body,
        };
        let plain = FingerprintRules { explain: true, ..FingerprintRules::default() };
        let pointer = |text| Pointer::parse(text).expect("a pointer");
        let (select, ignore) = (vec![pointer("/amount"), pointer("/to")], vec![pointer("/to/0")]);
        let rules = FingerprintRules { select, ignore, ..plain.clone() };
        let former =
            Fingerprint::from_stored(1, BodyForm::Canonical, [0; 32], PartDigests::default());
        let secrets = (&Secrets::default(), &tenant);
        let like = |stored: &Fingerprint| {
            Fingerprint::taken_like(stored, &parts, &plain, secrets, &id)
                .expect("version 1 is known")
        };
        let first = like(&former);
        let again = like(&first);
        let by = |rules| Fingerprint::of(&parts, rules, None, &id);
        [by(&plain), first, again, by(&rules)]
    }

    fn of_text(&self, content_type: &str) -> [Fingerprint; 4] {
        self.of(&HeaderValue::from_str(content_type).expect("a header's value"))
    }
}

/// Returns true for a kind and a subtype that every reader takes for one.
fn is_type(essence: &str) -> bool {
    let mut parts = essence.split('/');
    let is_plain = |part: Option<&str>| {
        part.is_some_and(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
    };
    is_plain(parts.next()) && is_plain(parts.next()) && parts.next().is_none()
}

/// Returns true for parameters without quotes.
fn has_tokens(parameters: &str) -> bool {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    parameters.split(';').skip(1).all(|one| {
        one.trim_matches(' ')
            .split_once('=')
            .is_some_and(|(name, value)| is_token(name) && is_token(value))
    })
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
