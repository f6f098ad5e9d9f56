//! Digests of requests: the same request sent again has the same fingerprint.
//!
//! JSON bodies are compared by value: the order of members, whitespace, escapes and the spelling of
//! numbers make no difference, everything else does. Bodies of other types, and JSON that parsers read
//! differently, are compared byte for byte, so an ambiguous body ends in a mismatch and never in the
//! outcome of another request.
//!
//! - [`form`] and [`media`]: the bytes that are digested; stored format.
//! - [`canonical`] and [`number`]: JSON by value. [`fields`]: the parts of it that rules ignore or select.
//! - [`secret`]: keys a fingerprint. [`digests`] and [`difference`]: name the parts that differ in a mismatch.

mod canonical;
mod difference;
mod digests;
mod fields;
mod form;
mod media;
mod number;
mod pointer;
mod secret;

use std::fmt;
use std::hint::black_box;

use http::{HeaderMap, HeaderName, Method};

use crate::{RecordId, Tenant};
pub(crate) use difference::AUTHORITY;
pub use digests::PartDigests;
pub(crate) use number::canonical_number;
pub use pointer::{Pointer, PointerError};
pub use secret::{Secret, SecretError, SecretId, Secrets};

use digests::PartKey;
use form::{Form, Version};

/// The digest of what a request asks for, and how it was taken.
///
/// `==` compares everything that is stored; whether two requests are the same is
/// [`compare`](Self::compare)'s to say.
#[derive(Clone, PartialEq, Eq)]
pub struct Fingerprint {
    version: u8,
    form: BodyForm,
    secret: Option<SecretId>,
    digest: [u8; 32],
    parts: PartDigests,
}

/// Form in which a body was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// JSON by value. As a rule: where the body is JSON, and raw where it is not.
    #[default]
    Canonical,
    /// The bytes as they came.
    Raw,
}

/// Selects which parts of a request enter its fingerprint, beyond method, authority, path, query,
/// content type and content encoding.
///
/// `select` and `ignore` apply to canonical bodies. A body that has no canonical form enters whole,
/// which is the safe side: it can only match itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FingerprintRules {
    /// Form in which bodies are compared; canonical by default.
    pub body: BodyForm,
    /// Headers whose values count, each with all its lines in their order; none by default.
    pub headers: Vec<HeaderName>,
    /// The only values of the body that count; empty means all. A value that is missing differs
    /// from `null`.
    pub select: Vec<Pointer>,
    /// Values of the body that do not count. Ignoring goes before selecting; an ignored element
    /// still counts as an element.
    pub ignore: Vec<Pointer>,
    /// Explains mismatches even where no secret keys the fingerprints. The store then holds a short
    /// digest of each part of a request, which anyone who can read it can test guesses against: use it
    /// only for requests that hold no secrets. Off by default.
    pub explain: bool,
}

/// The parts of a request a fingerprint is made from.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The method, as sent.
    pub method: &'a Method,
    /// The host, with the port if one was named; its case does not count.
    pub authority: &'a str,
    /// The concrete path, not the pattern it matched.
    pub path: &'a str,
    /// The query without its question mark; an empty one is not the same as none.
    pub query: Option<&'a str>,
    /// All headers: the content type decides on the body's form.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: &'a [u8],
}

/// Result of comparing a request with the one a key was first used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It asks for the same.
    Same,
    /// It asks for something else.
    Different,
    /// The stored fingerprint was taken another way: by another version, or with another secret.
    OtherWay,
}

impl Fingerprint {
    /// Version of the fingerprint format written now. It is stored with each fingerprint, so that a
    /// newer version in a rolling deploy is not mistaken for a mismatch.
    pub const VERSION: u8 = Version::Two.number();

    /// Takes the fingerprint of a request.
    ///
    /// The id is part of the digests: the same request under two keys has two fingerprints, which cannot be
    /// told to be of the same request without the secret, or without trying requests where there is none.
    pub fn of(
        parts: &Parts<'_>,
        rules: &FingerprintRules,
        secret: Option<&Secret>,
        id: &RecordId,
    ) -> Self {
        Self::by(Version::Two, parts, rules, secret, id)
    }

    fn by(
        version: Version,
        parts: &Parts<'_>,
        rules: &FingerprintRules,
        secret: Option<&Secret>,
        id: &RecordId,
    ) -> Self {
        let form = Form::of(parts, rules, version);
        let keeps_parts = secret.is_some() || rules.explain;
        Self {
            version: version.number(),
            form: form.body_form(),
            secret: secret.map(Secret::id),
            digest: form.digest(secret, id),
            parts: if keeps_parts {
                PartDigests::of(&form, rules, &PartKey::of(secret, id))
            } else {
                PartDigests::default()
            },
        }
    }

    /// Takes the fingerprint of a request the way `stored` was taken, so that the two can be
    /// [compared](Self::compare). `None` if this build does not know the version, or the secret is not
    /// among `secrets`.
    ///
    /// Version 1 did not say which secret it used: the one that makes the two the same, or none.
    pub fn taken_like(
        stored: &Self,
        parts: &Parts<'_>,
        rules: &FingerprintRules,
        (secrets, tenant): (&Secrets, &Tenant),
        id: &RecordId,
    ) -> Option<Self> {
        let version = Version::of(stored.version)?;
        let by = |secret| Self::by(version, parts, rules, secret, id);
        match (version, stored.secret) {
            (Version::One, _) => {
                let keyed = secrets.of(tenant).map(|secret| by(Some(secret)));
                let same = keyed.into_iter().find(|taken| taken.has_digest_of(stored));
                let taken = same.unwrap_or_else(|| by(None));
                Some(Self { secret: stored.secret, ..taken })
            }
            (Version::Two, None) => Some(by(None)),
            (Version::Two, Some(known)) => secrets
                .of(tenant)
                .find(|secret| secret.id() == known)
                .map(|secret| by(Some(secret))),
        }
    }

    /// Restores a fingerprint from its stored parts.
    pub const fn from_stored(
        version: u8,
        form: BodyForm,
        digest: [u8; 32],
        parts: PartDigests,
    ) -> Self {
        Self { version, form, secret: None, digest, parts }
    }

    /// The same, keyed by the secret of this id.
    #[must_use]
    pub const fn keyed_by(mut self, secret: Option<SecretId>) -> Self {
        self.secret = secret;
        self
    }

    /// The way it was taken.
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The form the body was taken in.
    pub const fn form(&self) -> BodyForm {
        self.form
    }

    /// Returns the id of the secret that keyed it, if one did.
    pub const fn secret(&self) -> Option<SecretId> {
        self.secret
    }

    /// The digest of the whole request.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The digests of its parts, by which a mismatch is explained.
    pub const fn parts(&self) -> &PartDigests {
        &self.parts
    }

    /// Compares a request's fingerprint with the stored one, in a time that says nothing about
    /// where they differ.
    pub fn compare(&self, stored: &Self) -> Comparison {
        if (self.version, self.secret) != (stored.version, stored.secret) {
            return Comparison::OtherWay;
        }
        if self.has_digest_of(stored) { Comparison::Same } else { Comparison::Different }
    }

    fn has_digest_of(&self, stored: &Self) -> bool {
        let bits = self.digest.iter().zip(&stored.digest).fold(0, |bits, (a, b)| bits | (a ^ b));
        black_box(bits) == 0
    }

    /// Names the parts of a request that the stored one did not have like this: JSON pointers, and
    /// `method`, `authority`, `path`, `query`, `header:<name>` or `body`.
    ///
    /// At most 16 names of at most 128 bytes, then `(removed)` if the stored request must have had
    /// parts this one lacks. A hint: only the first 64 parts of a request are remembered, and none
    /// where neither a secret nor the rules let them be or an earlier version took them, so the list may
    /// be empty although the fingerprints differ.
    pub fn differing_parts(
        parts: &Parts<'_>,
        rules: &FingerprintRules,
        (secrets, tenant): (&Secrets, &Tenant),
        id: &RecordId,
        stored: &Self,
    ) -> Vec<String> {
        if stored.version != Self::VERSION {
            return Vec::new();
        }
        let secret = match stored.secret {
            None => None,
            Some(known) => match secrets.of(tenant).find(|secret| secret.id() == known) {
                None => return Vec::new(),
                found @ Some(_) => found,
            },
        };
        let form = Form::of(parts, rules, Version::Two);
        difference::differing(&form, rules, &PartKey::of(secret, id), &stored.parts)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A few bytes tell fingerprints apart; all of them would let a log's reader test guesses.
        let keyed = if self.secret.is_some() { " keyed" } else { "" };
        write!(f, "Fingerprint(v{} {:?}{keyed} ", self.version, self.form)?;
        self.digest[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "…, {} parts)", self.parts.count())
    }
}

impl BodyForm {
    /// Returns the byte that is stored and digested.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Canonical => 1,
            Self::Raw => 2,
        }
    }

    /// Restores a form from its stored byte; `None` if no form has it.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Canonical),
            2 => Some(Self::Raw),
            _ => None,
        }
    }
}

#[cfg(test)]
mod spelling;
#[cfg(test)]
mod tests;
