//! Short digests of a request's parts, so that a mismatch can say what differs.
//!
//! A part is the method, the authority, the path, the query, the content type, the content encoding,
//! one selected header, or one leaf of a JSON body: a scalar or an empty container. Each digest is two
//! bytes, keyed per record: nearly always enough to find the part that changed. Every record carries
//! them, so they are kept as short as possible.
//!
//! Part digests split a guess at the whole request into guesses at its parts: without a secret, an
//! attacker who can read a row finds a card's number, code and expiry one after the other. So they are
//! stored only where a secret keys them, or where the rules declare that request contents may be
//! public.

use std::fmt;
use std::hash::Hasher;
use std::ops::ControlFlow;

use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;

use super::canonical::{ARRAY, END, NAME, OBJECT, payload_end};
use super::fields::Place;
use super::form::Form;
use super::{BodyForm, FingerprintRules, Secret};
use crate::RecordId;

/// Keyed 2-byte digests of a request's parts, in the order of the request's canonical form.
///
/// A hint and no proof: requests are compared by the fingerprint's digest alone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PartDigests(Vec<u8>);

/// Name of a part, not yet rendered as text.
pub(super) enum PartName<'a> {
    /// By its place among the sections before the body.
    Head(usize),
    /// The whole body, in raw form.
    Body,
    /// A leaf of the body, in canonical form.
    Leaf(&'a [Place<'a>]),
}

/// The key of all part digests of one record.
pub(super) struct PartKey([u8; 16]);

const DIGEST_BYTES: usize = 2;

/// Begins what part keys are made from, so that none equals a fingerprint.
const KEY_LABEL: &[u8] = b"firstwrite part key";

impl PartDigests {
    /// Covers any form a person fills in, and keeps a record within 128 bytes of its size without.
    pub const COUNT_MAX: usize = 64;

    /// Restores part digests from stored bytes; `None` if they cannot be part digests.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.len().is_multiple_of(DIGEST_BYTES);
        (is_whole && bytes.len() <= Self::COUNT_MAX * DIGEST_BYTES).then(|| Self(bytes.to_vec()))
    }

    /// The digests one after another, as a store keeps them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.0.len() / DIGEST_BYTES
    }

    pub(super) fn of(form: &Form, rules: &FingerprintRules, key: &PartKey) -> Self {
        // Gathered on the stack and kept in as many bytes as there are: records are many.
        let mut bytes = [0; Self::COUNT_MAX * DIGEST_BYTES];
        let mut length = 0;
        let walk = each_part(form, rules, key, |_, digest| {
            bytes[length..length + DIGEST_BYTES].copy_from_slice(&digest);
            length += DIGEST_BYTES;
            if length < bytes.len() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        debug_assert_eq!(walk.is_break(), length == bytes.len());
        Self(bytes[..length].to_vec())
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.chunks_exact(DIGEST_BYTES)
    }
}

impl fmt::Debug for PartDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartDigests({})", self.count())
    }
}

impl PartKey {
    pub(super) fn of(secret: Option<&Secret>, id: &RecordId) -> Self {
        let mut message = [0; KEY_LABEL.len() + 16];
        message[..KEY_LABEL.len()].copy_from_slice(KEY_LABEL);
        message[KEY_LABEL.len()..].copy_from_slice(id.as_bytes());
        let digest = match secret {
            Some(secret) => secret.digest(&[&message]),
            None => Sha256::digest(message).into(),
        };
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(key)
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// Shows each part and its digest to `visit`, in the order of the canonical form.
pub(super) fn each_part(
    form: &Form,
    rules: &FingerprintRules,
    key: &PartKey,
    mut visit: impl FnMut(PartName<'_>, [u8; DIGEST_BYTES]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for (index, section) in form.head_sections().enumerate() {
        visit(PartName::Head(index), finish(key.hasher(), section))?;
    }
    match form.body_form() {
        BodyForm::Raw => visit(PartName::Body, finish(key.hasher(), form.body_section())),
        BodyForm::Canonical => each_leaf(form.canonical_values(), rules, key, visit),
    }
}

fn each_leaf<'f>(
    values: &'f [u8],
    rules: &'f FingerprintRules,
    key: &PartKey,
    visit: impl FnMut(PartName<'_>, [u8; DIGEST_BYTES]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut leaves = Leaves { values, path: Vec::new(), visit };
    if rules.select.is_empty() {
        leaves.value(0, 0, key.hasher())?;
        return ControlFlow::Continue(());
    }
    let mut at = 0;
    for pointer in &rules.select {
        let mut hasher = key.hasher();
        leaves.path.clear();
        for step in pointer.steps() {
            hasher.write(&[NAME]);
            hasher.write(step.name.as_bytes());
            leaves.path.push(Place::Name(step.name.as_bytes()));
        }
        at = leaves.value(at, at, hasher)?;
    }
    ControlFlow::Continue(())
}

struct Leaves<'f, V> {
    values: &'f [u8],
    path: Vec<Place<'f>>,
    visit: V,
}

impl<V: FnMut(PartName<'_>, [u8; DIGEST_BYTES]) -> ControlFlow<()>> Leaves<'_, V> {
    /// Visits the leaves of the value at `at` and returns where it ends.
    ///
    /// `hasher` has read the path up to the byte `from`: a member's name stands right before its
    /// value, so both are hashed in one go.
    fn value(&mut self, from: usize, at: usize, mut hasher: SipHasher13) -> ControlFlow<(), usize> {
        let tag = self.values[at];
        let is_container = matches!(tag, ARRAY | OBJECT);
        if !is_container || self.values[at + 1] == END {
            let end = if is_container { at + 2 } else { payload_end(self.values, at + 1) };
            let digest = finish(hasher, &self.values[from..end]);
            (self.visit)(PartName::Leaf(&self.path), digest)?;
            return ControlFlow::Continue(end);
        }
        hasher.write(&self.values[from..=at]);
        let mut next = at + 1;
        let mut index = 0;
        while self.values[next] != END {
            next = if tag == OBJECT {
                let name_end = payload_end(self.values, next + 1);
                self.path.push(Place::Name(&self.values[next + 1..name_end]));
                self.value(next, name_end, hasher)?
            } else {
                let mut element = hasher;
                element.write(&(index as u64).to_be_bytes());
                self.path.push(Place::Index(index));
                index += 1;
                self.value(next, next, element)?
            };
            self.path.pop();
        }
        ControlFlow::Continue(next + 1)
    }
}

fn finish(mut hasher: SipHasher13, rest: &[u8]) -> [u8; DIGEST_BYTES] {
    hasher.write(rest);
    let [a, b, ..] = hasher.finish().to_le_bytes();
    [a, b]
}
