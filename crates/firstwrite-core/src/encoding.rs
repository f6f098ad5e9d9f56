//! Encodes keys, fingerprints and outcomes as stores keep them. A stored format: it may be extended under a new
//! version and never changed.
//!
//! - A **key** that is a UUID in its canonical form (lower case, 8-4-4-4-12) is its 16 bytes; each store
//!   decides by itself how to tell them from a key's text.
//! - A **fingerprint** is one run of bytes: the 32-byte digest, the 5-byte id of the secret that keyed it
//!   if one did, then the part digests of 2 bytes each. An odd length says that there is an id.
//! - An **outcome** is one run of bytes: a byte of version and form, the status, the kept headers, the
//!   body. What nearly every answer says (`content-type: application/json`) is one byte. That it is
//!   interim is a bit of the first byte; so is that it is sealed.
//! - A message's **answers** are one run of bytes: a byte of version, the length of the first outcome,
//!   both outcomes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{StatusCode, header};

use crate::outbox::Answers;
use crate::{
    Body, BodyForm, Fingerprint, KeptHeaders, OnLostAnswer, Outcome, PartDigests, Retention,
    SecretId, StoreError, StoreErrorKind, Tenant,
};

/// Bytes that are not in the format of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(
    /// The rule that they break.
    pub &'static str,
);

impl From<Unreadable> for StoreError {
    fn from(Unreadable(what): Unreadable) -> Self {
        Self::definite(StoreErrorKind::Corrupt, "reading a record").caused_by(what)
    }
}

/// The upper half of an outcome's first byte.
const VERSION: u8 = 0x10;
const VERSION_MASK: u8 = 0xf0;
/// The lower half: whether the body was kept, whether the outcome stands in for another, whether headers
/// and body are sealed, and whether it only notes that the attempt was released.
const FORM_WHOLE: u8 = 0;
const FORM_TOMBSTONE: u8 = 1;
const INTERIM: u8 = 2;
const FORM_SEALED: u8 = 4;
const FORM_RELEASED: u8 = 8;

/// The first byte of a message's answers.
const ANSWERS_VERSION: u8 = 1;

/// Statuses with a code of one byte, counted from 1; 0 announces two bytes. Only ever appended to.
const STATUSES: [u16; 16] =
    [200, 201, 202, 204, 301, 302, 303, 307, 400, 401, 402, 403, 404, 409, 410, 422];

/// Header names with a code of one byte, counted from 1; 0 announces a spelt name. Only ever
/// appended to, up to `PAIRS_FROM`.
const NAMES: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::LOCATION, header::ETAG, header::LINK];

/// Whole header lines with a code of one byte, counted from `PAIRS_FROM`. Only ever appended to.
const PAIRS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "application/json"),
    (header::CONTENT_TYPE, "application/json; charset=utf-8"),
    (header::CONTENT_TYPE, "application/problem+json"),
    (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
];
const PAIRS_FROM: u8 = 64;

/// A retention as three numbers: milliseconds of replay, milliseconds of lingering, and 1 if spent keys
/// are refused.
pub fn retention_numbers(retention: Retention) -> [i64; 3] {
    let Retention { replay_for, linger_for, refuses_spent } = retention;
    [whole_millis(replay_for), whole_millis(linger_for), i64::from(refuses_spent)]
}

/// The retention that was written as [`retention_numbers`].
pub fn retention_of([replay_for, linger_for, refuses_spent]: [i64; 3]) -> Retention {
    let span = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    Retention {
        replay_for: span(replay_for),
        linger_for: span(linger_for),
        refuses_spent: refuses_spent != 0,
    }
}

fn whole_millis(span: Duration) -> i64 {
    as_i64(span.as_millis())
}

/// Returns the bytes of a fingerprint; its version and form have places of their own.
pub fn encode_fingerprint(fingerprint: &Fingerprint) -> Vec<u8> {
    let parts = fingerprint.parts().as_bytes();
    let mut bytes = Vec::with_capacity(fingerprint.digest().len() + SecretId::BYTES + parts.len());
    bytes.extend_from_slice(fingerprint.digest());
    if let Some(secret) = fingerprint.secret() {
        bytes.extend_from_slice(secret.as_bytes());
    }
    bytes.extend_from_slice(parts);
    bytes
}

/// Reads the fingerprint that was written as [`encode_fingerprint`].
pub fn decode_fingerprint(
    version: u8,
    form: BodyForm,
    bytes: &[u8],
) -> Result<Fingerprint, Unreadable> {
    let (digest, mut parts) =
        bytes.split_first_chunk().ok_or(Unreadable("a fingerprint has at least 32 bytes"))?;
    let mut secret = None;
    if !parts.len().is_multiple_of(2) {
        let (id, rest) =
            parts.split_first_chunk().ok_or(Unreadable("a secret's id has 5 bytes"))?;
        (secret, parts) = (Some(SecretId::from_bytes(*id)), rest);
    }
    let parts =
        PartDigests::from_bytes(parts).ok_or(Unreadable("part digests of an impossible length"))?;
    Ok(Fingerprint::from_stored(version, form, *digest, parts).keyed_by(secret))
}

/// Reads a fingerprint whose version and form have columns of their own.
pub fn fingerprint_of(
    version: impl TryInto<u8>,
    form: impl TryInto<u8>,
    bytes: &[u8],
) -> Result<Fingerprint, Unreadable> {
    let version = version.try_into();
    let version = version.map_err(|_range| Unreadable("a fingerprint's version is one byte"))?;
    let form = form.try_into().ok().and_then(BodyForm::from_byte);
    decode_fingerprint(version, form.ok_or(Unreadable("an unknown form of fingerprint"))?, bytes)
}

/// Reads the number of a choice for lost answers.
pub fn lost_answer_of(number: i64) -> Result<OnLostAnswer, Unreadable> {
    OnLostAnswer::from_number(number).ok_or(Unreadable("an unknown choice for lost answers"))
}

/// Reads the name of a tenant.
pub fn tenant_of(name: &str) -> Result<Tenant, Unreadable> {
    Tenant::new(name).map_err(|_not_a_tenant| Unreadable("a name that cannot be a tenant's"))
}

/// Returns `count` as a column holds it; the largest integer if it does not fit.
pub fn as_i64(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Returns the bytes of an outcome.
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let (form, body) = match &outcome.body {
        Body::Bytes(bytes) => (FORM_WHOLE, &bytes[..]),
        Body::Tombstone => (FORM_TOMBSTONE, &[][..]),
        Body::Sealed(bytes) => (FORM_SEALED, &bytes[..]),
        Body::Released => (FORM_RELEASED, &[][..]),
    };
    let mut out = Vec::with_capacity(body.len() + 32);
    let interim = if outcome.is_interim { INTERIM } else { 0 };
    out.push(VERSION | form | interim);
    if let Some(code) = code_of(&STATUSES, |status| *status == outcome.status.as_u16()) {
        out.push(code);
    } else {
        out.push(0);
        out.extend_from_slice(&outcome.status.as_u16().to_be_bytes());
    }
    put_length(&mut out, outcome.headers.iter().len());
    for (name, value) in outcome.headers.iter() {
        if let Some(code) = code_of(&PAIRS, |pair| pair.0 == name && pair.1 == value) {
            out.push(PAIRS_FROM + code - 1);
            continue;
        }
        if let Some(code) = code_of(&NAMES, |known| known == name) {
            out.push(code);
        } else {
            out.push(0);
            put_bytes(&mut out, name.as_str().as_bytes());
        }
        put_bytes(&mut out, value.as_bytes());
    }
    out.extend_from_slice(body);
    out
}

/// Reads the outcome that was written as [`encode_outcome`].
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut rest = Reader(bytes);
    let first = rest.byte()?;
    if first & VERSION_MASK != VERSION {
        return Err(Unreadable("an outcome was written by another version"));
    }
    let status = match rest.byte()? {
        0 => u16::from_be_bytes([rest.byte()?, rest.byte()?]),
        code => *known(&STATUSES, code)?,
    };
    let status = StatusCode::from_u16(status).map_err(|_range| Unreadable("no such status"))?;
    let count = rest.length()?;
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push(decode_header(&mut rest)?);
    }
    let headers = KeptHeaders::from_pairs(headers);
    let outcome = match first & !VERSION_MASK & !INTERIM {
        FORM_WHOLE => Outcome::new(status, headers, Bytes::copy_from_slice(rest.0)),
        FORM_TOMBSTONE if rest.0.is_empty() => Outcome::tombstone(status, headers),
        FORM_RELEASED if count == 0 && rest.0.is_empty() => Outcome::released(status),
        // What is sealed has its headers inside.
        FORM_SEALED if count == 0 => Outcome::sealed(status, Bytes::copy_from_slice(rest.0)),
        _ => return Err(Unreadable("an outcome has an unknown form")),
    };
    Ok(Outcome { is_interim: first & INTERIM != 0, ..outcome })
}

/// Returns the bytes of a message's answers.
pub fn encode_answers(answers: &Answers) -> Vec<u8> {
    let mut out = vec![ANSWERS_VERSION];
    put_bytes(&mut out, &encode_outcome(&answers.delivered));
    out.extend_from_slice(&encode_outcome(&answers.refused));
    out
}

/// Reads the answers that were written as [`encode_answers`].
pub fn decode_answers(bytes: &[u8]) -> Result<Answers, Unreadable> {
    let mut rest = Reader(bytes);
    if rest.byte()? != ANSWERS_VERSION {
        return Err(Unreadable("answers were written by another version"));
    }
    let delivered = decode_outcome(rest.bytes()?)?;
    Ok(Answers { delivered, refused: decode_outcome(rest.0)? })
}

fn decode_header(rest: &mut Reader<'_>) -> Result<(HeaderName, HeaderValue), Unreadable> {
    let code = rest.byte()?;
    if code >= PAIRS_FROM {
        let (name, value) = known(&PAIRS, code - PAIRS_FROM + 1)?;
        return Ok((name.clone(), HeaderValue::from_static(value)));
    }
    let name = if code == 0 {
        let spelt = rest.bytes()?;
        HeaderName::from_bytes(spelt).map_err(|_not_a_name| Unreadable("no header name"))?
    } else {
        known(&NAMES, code)?.clone()
    };
    let value = HeaderValue::from_bytes(rest.bytes()?)
        .map_err(|_not_a_value| Unreadable("no header value"))?;
    Ok((name, value))
}

/// The place of an entry, counted from 1.
fn code_of<T>(table: &[T], is: impl Fn(&T) -> bool) -> Option<u8> {
    table.iter().position(is).and_then(|place| u8::try_from(place + 1).ok())
}

fn known<T>(table: &[T], code: u8) -> Result<&T, Unreadable> {
    let place = usize::from(code).checked_sub(1);
    place.and_then(|place| table.get(place)).ok_or(Unreadable("an unknown short code"))
}

/// Seven bits in each byte, lowest first; the eighth says that another follows.
fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).expect("seven bits fit a byte") | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).expect("less than 0x80"));
}

/// Appends the length of `bytes`, and `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads one thing after the other; an error where there is no more.
#[derive(Debug)]
pub struct Reader<'a>(
    /// The bytes that are left.
    pub &'a [u8],
);

impl<'a> Reader<'a> {
    const SHORT: Unreadable = Unreadable("an outcome ends too early");

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, Unreadable> {
        let (first, rest) = self.0.split_first().ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(*array)
    }

    fn length(&mut self) -> Result<usize, Unreadable> {
        let mut length = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(Unreadable("a length is too long"))
    }

    /// Reads what [`put_bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.length()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }
}

const UUID_LENGTH: usize = 36;
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];

/// Returns the bytes of a UUID in its canonical form; `None` for any other text.
pub fn pack_uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; UUID_LENGTH] = text.as_bytes().try_into().ok()?;
    let mut packed = [0; 16];
    let mut nibbles = 0;
    for (place, byte) in text.iter().enumerate() {
        if UUID_DASHES.contains(&place) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let nibble = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        packed[nibbles / 2] |= if nibbles % 2 == 0 { nibble << 4 } else { nibble };
        nibbles += 1;
    }
    Some(packed)
}

/// Returns the text of a UUID that [`pack_uuid`] packed.
pub fn unpack_uuid(packed: [u8; 16]) -> String {
    let mut text = String::with_capacity(UUID_LENGTH);
    for byte in packed {
        if UUID_DASHES.contains(&text.len()) {
            text.push('-');
        }
        for nibble in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(u32::from(nibble), 16).expect("four bits"));
        }
    }
    text
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
