//! Serializes a request into the bytes that are digested.
//!
//! The bytes are a stored format: a change here needs a new [`Version`], and the digests pinned in the
//! tests fail without one.

use sha2::{Digest, Sha256};

use super::{BodyForm, FingerprintRules, Parts, Secret, canonical, fields, media};
use crate::RecordId;

/// Begins every form, so that no other use of the secret digests the same bytes.
const LABEL: &[u8] = b"firstwrite fingerprint";

/// A way to take fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Without content type, content encoding and the record's id, and without the secret's id in what is
    /// stored.
    One,
    /// As they are taken now.
    Two,
}

/// One request, written out. Every section begins with its own letter and says its lengths, so two
/// requests share their bytes only if they ask for the same.
pub(super) struct Form {
    bytes: Vec<u8>,
    /// Offsets at which each section before the body begins, then the offset of the body.
    borders: Vec<usize>,
    body: BodyForm,
    version: Version,
}

impl Version {
    /// The version by its number; `None` if this build does not know it.
    pub(super) const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

impl Form {
    pub(super) fn of(parts: &Parts<'_>, rules: &FingerprintRules, version: Version) -> Self {
        // The canonical form is hardly ever longer than the text; a raw body enters as a digest.
        let wants_canonical = rules.body == BodyForm::Canonical && media::is_json(parts.headers);
        let body_bytes = if wants_canonical { parts.body.len() } else { 32 };
        let mut bytes = Vec::with_capacity(256 + parts.path.len() + body_bytes);
        let mut borders = Vec::with_capacity(7 + rules.headers.len());
        bytes.extend_from_slice(LABEL);
        bytes.push(version.number());

        borders.push(bytes.len());
        bytes.push(b'm');
        append_sized(parts.method.as_str().as_bytes(), &mut bytes);

        borders.push(bytes.len());
        bytes.push(b'a');
        append_sized(parts.authority.as_bytes(), &mut bytes);
        // Host names have no case; which spelling a client picks is chance.
        let authority = bytes.len() - parts.authority.len();
        bytes[authority..].make_ascii_lowercase();

        borders.push(bytes.len());
        bytes.push(b'p');
        append_sized(parts.path.as_bytes(), &mut bytes);

        borders.push(bytes.len());
        bytes.push(b'q');
        bytes.push(u8::from(parts.query.is_some()));
        append_sized(parts.query.unwrap_or_default().as_bytes(), &mut bytes);

        if version == Version::Two {
            borders.push(bytes.len());
            bytes.push(b't');
            media::append_type(parts.headers, &mut bytes);

            borders.push(bytes.len());
            bytes.push(b'e');
            media::append_encoding(parts.headers, &mut bytes);
        }

        for name in &rules.headers {
            borders.push(bytes.len());
            let lines = parts.headers.get_all(name);
            bytes.push(b'h');
            append_sized(name.as_str().as_bytes(), &mut bytes);
            append_length(lines.iter().count(), &mut bytes);
            for line in lines {
                append_sized(line.as_bytes(), &mut bytes);
            }
        }

        borders.push(bytes.len());
        bytes.push(b'b');
        let form_tag = bytes.len();
        bytes.push(0);
        let body = append_body(parts, rules, wants_canonical, &mut bytes);
        bytes[form_tag] = body.as_byte();
        Self { bytes, borders, body, version }
    }

    pub(super) fn body_form(&self) -> BodyForm {
        self.body
    }

    /// Digests the form. From version 2 on the record's id is part of it, so that a copy of a store does not
    /// show which requests are equal, and a guess that is sent under one key tells nothing about another.
    pub(super) fn digest(&self, secret: Option<&Secret>, id: &RecordId) -> [u8; 32] {
        let id = match self.version {
            Version::One => &[][..],
            Version::Two => id.as_bytes(),
        };
        match secret {
            Some(secret) => secret.digest(&[&self.bytes, id]),
            None => Sha256::new().chain_update(&self.bytes).chain_update(id).finalize().into(),
        }
    }

    /// Method, authority, path, query, content type, content encoding, then each selected header.
    pub(super) fn head_sections(&self) -> impl Iterator<Item = &[u8]> {
        self.borders.windows(2).map(|pair| &self.bytes[pair[0]..pair[1]])
    }

    /// The body's section, with its letter and form.
    pub(super) fn body_section(&self) -> &[u8] {
        &self.bytes[self.borders[self.borders.len() - 1]..]
    }

    /// The canonical values alone; meaningless in raw form.
    pub(super) fn canonical_values(&self) -> &[u8] {
        &self.body_section()[2..]
    }
}

/// The body is the last section and needs no length.
fn append_body(
    parts: &Parts<'_>,
    rules: &FingerprintRules,
    wants_canonical: bool,
    out: &mut Vec<u8>,
) -> BodyForm {
    let start = out.len();
    if wants_canonical && canonical::append(parts.body, out) {
        if !rules.ignore.is_empty() {
            let kept = fields::without(&out[start..], &rules.ignore);
            out.truncate(start);
            out.extend_from_slice(&kept);
        }
        if !rules.select.is_empty() {
            let selected = fields::only(&out[start..], &rules.select);
            out.truncate(start);
            out.extend_from_slice(&selected);
        }
        return BodyForm::Canonical;
    }
    // By its own digest, so that a large body is neither copied nor read twice for its part.
    out.extend_from_slice(&Sha256::digest(parts.body));
    BodyForm::Raw
}

pub(super) fn append_sized(bytes: &[u8], out: &mut Vec<u8>) {
    append_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

pub(super) fn append_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u64).to_be_bytes());
}
