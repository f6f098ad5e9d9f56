//! What a request asks for, written out as the bytes that are digested.
//!
//! The bytes are stored format: a change here is a new [`Fingerprint::VERSION`], and the digests
//! pinned in the tests say so.
//!
//! [`Fingerprint::VERSION`]: super::Fingerprint::VERSION

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sha2::{Digest, Sha256};

use super::{BodyForm, Fingerprint, FingerprintRules, Parts, Secret, canonical, fields};

/// Begins every form, so that no other use of the secret digests the same bytes.
const LABEL: &[u8] = b"firstwrite fingerprint";

/// One request, written out. Every section begins with its own letter and says its lengths, so two
/// requests share their bytes only if they ask for the same.
pub(super) struct Form {
    bytes: Vec<u8>,
    /// Where each section before the body begins, and at last where the body does.
    borders: Vec<usize>,
    body: BodyForm,
}

impl Form {
    pub(super) fn of(parts: &Parts<'_>, rules: &FingerprintRules) -> Self {
        // The canonical form is hardly ever longer than the text; a raw body enters as a digest.
        let wants_canonical = rules.body == BodyForm::Canonical && is_json(parts.headers);
        let body_bytes = if wants_canonical { parts.body.len() } else { 32 };
        let mut bytes = Vec::with_capacity(192 + parts.path.len() + body_bytes);
        let mut borders = Vec::with_capacity(5 + rules.headers.len());
        bytes.extend_from_slice(LABEL);
        bytes.push(Fingerprint::VERSION);

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
        Self { bytes, borders, body }
    }

    pub(super) fn body_form(&self) -> BodyForm {
        self.body
    }

    pub(super) fn digest(&self, secret: Option<&Secret>) -> [u8; 32] {
        match secret {
            Some(secret) => secret.digest(&self.bytes),
            None => Sha256::digest(&self.bytes).into(),
        }
    }

    /// Method, authority, path, query, then each selected header.
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

/// Whether the body says it is JSON: `application/json` or any type that ends in `+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    // Two types are none: no reader could tell which one holds.
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let Ok(value) = line.to_str() else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return true;
    }
    essence
        .split_once('/')
        .and_then(|(_, subtype)| subtype.rsplit_once('+'))
        .is_some_and(|(_, suffix)| suffix.eq_ignore_ascii_case("json"))
}

fn append_sized(bytes: &[u8], out: &mut Vec<u8>) {
    append_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn append_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u64).to_be_bytes());
}
