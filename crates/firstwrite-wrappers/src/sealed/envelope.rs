//! One outcome, sealed: a stored format, which may be added to under a new version and never changed.
//!
//! ```text
//! 1 byte    version
//! 1 byte    length of the key's id, then the id
//! 12 bytes  nonce, drawn at random
//! the rest  AES-256-GCM of the outcome as stores write it, with its tag of 16 bytes
//! ```
//!
//! Authenticated with it: a label, the record's id, the fence, the status, whether it is interim, and
//! the key's id.

use std::fmt;

use bytes::Bytes;
use firstwrite_core::encoding::{decode_outcome, encode_outcome};
use firstwrite_core::{Body, Fence, Outcome, Record, RecordId, StoreError, StoreErrorKind, Tenant};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use super::key_ring::{Dropped, KeyRing, SealingKey};

/// The first byte of a sealed outcome.
const VERSION: u8 = 1;

/// Prefix of the authenticated data, which also separates derived keys from those of other uses.
const LABEL: &[u8] = b"firstwrite sealed outcome 1";

const DOING: &str = "sealing an outcome";

/// Identity to which a sealed outcome is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bond<'a> {
    pub(crate) id: RecordId,
    pub(crate) fence: Fence,
    pub(crate) tenant: &'a Tenant,
}

/// Reason why an outcome does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFailure {
    /// It is not in the format of this build.
    Malformed,
    /// The ring does not have its key, or not for this tenant.
    NoKey,
    /// Its tenant was dropped.
    Dropped,
    /// It was altered, or belongs to another record, attempt or tenant.
    Altered,
    /// It is not sealed, and the ring reads nothing that is not.
    Plain,
}

/// Returns the error for a tenant for which nothing may be written.
pub(super) fn refused(dropped: Dropped) -> StoreError {
    StoreError::definite(StoreErrorKind::Unsupported, DOING).caused_by(dropped)
}

pub(crate) fn seal(
    ring: &KeyRing,
    bond: Bond<'_>,
    outcome: &Outcome,
) -> Result<Outcome, StoreError> {
    // A note of a release holds nothing but its status.
    if outcome.is_release_note() {
        return Ok(outcome.clone());
    }
    let key = ring.for_writing(bond.tenant).map_err(refused)?;
    let failed = |_nothing_told: ring::error::Unspecified| {
        StoreError::definite(StoreErrorKind::Unavailable, DOING).caused_by("no cryptography")
    };
    let mut nonce = [0; NONCE_LEN];
    SystemRandom::new().fill(&mut nonce).map_err(failed)?;
    let mut text = encode_outcome(outcome);
    let aad = Aad::from(bond.authenticated(outcome, key.id()));
    let tag = derived(key, bond.tenant)
        .map_err(failed)?
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)
        .map_err(failed)?;
    let id = key.id().as_bytes();
    let mut sealed = vec![VERSION, u8::try_from(id.len()).unwrap_or(u8::MAX)];
    for part in [id, &nonce, &text, tag.as_ref()] {
        sealed.extend_from_slice(part);
    }
    let sealed = Outcome::sealed(outcome.status, Bytes::from(sealed));
    Ok(Outcome { is_interim: outcome.is_interim, ..sealed })
}

/// Returns the outcome that was sealed; an unsealed one is returned as it is, where it is allowed.
pub(crate) fn open(
    ring: &KeyRing,
    bond: Bond<'_>,
    outcome: &Outcome,
) -> Result<Outcome, OpenFailure> {
    let bytes = match &outcome.body {
        Body::Sealed(bytes) => bytes,
        // A released outcome is never replayed.
        Body::Released => return Ok(outcome.clone()),
        // All that is kept of a tenant that was dropped, for whom nothing can be sealed.
        Body::Tombstone if ring.is_dropped(bond.tenant) && outcome.headers.iter().len() == 0 => {
            return Ok(outcome.clone());
        }
        Body::Bytes(_) | Body::Tombstone if ring.reads_plain() => return Ok(outcome.clone()),
        Body::Bytes(_) | Body::Tombstone => return Err(OpenFailure::Plain),
    };
    let Parts { id, nonce, text } = Parts::of(bytes).ok_or(OpenFailure::Malformed)?;
    if ring.is_dropped(bond.tenant) {
        return Err(OpenFailure::Dropped);
    }
    let key = ring.for_reading(id, bond.tenant).ok_or(OpenFailure::NoKey)?;
    let aad = Aad::from(bond.authenticated(outcome, id));
    let mut text = text.to_vec();
    let plain = derived(key, bond.tenant)
        .and_then(|key| key.open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut text))
        .map_err(|_nothing_told| OpenFailure::Altered)?;
    let plain = decode_outcome(plain).map_err(|_unreadable| OpenFailure::Malformed)?;
    // Authenticated, so only a mistake of ours can make this fail.
    let is_same = plain.status == outcome.status && plain.is_interim == outcome.is_interim;
    if is_same { Ok(plain) } else { Err(OpenFailure::Altered) }
}

/// Parts of a sealed outcome.
struct Parts<'a> {
    id: &'a str,
    nonce: [u8; NONCE_LEN],
    /// With its tag.
    text: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, length], rest) = bytes.split_first_chunk()?;
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        let (&nonce, text) = rest.split_first_chunk()?;
        let id = std::str::from_utf8(id).ok().filter(|id| SealingKey::is_id(id))?;
        (version == VERSION).then_some(Self { id, nonce, text })
    }
}

/// Derives the tenant's own key for each outcome, which costs little compared with a commit: no key is
/// kept.
fn derived(key: &SealingKey, tenant: &Tenant) -> Result<LessSafeKey, ring::error::Unspecified> {
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, LABEL).extract(key.secret());
    let info = [tenant.as_str().as_bytes()];
    let expanded = extracted.expand(&info, &AES_256_GCM)?;
    Ok(LessSafeKey::new(UnboundKey::from(expanded)))
}

impl<'a> Bond<'a> {
    pub(crate) fn of(record: &'a Record) -> Self {
        Self { id: record.id, fence: record.fence, tenant: &record.tenant }
    }

    /// Every part but the last has a fixed length, so no two bonds give the same bytes.
    fn authenticated(&self, outcome: &Outcome, key_id: &str) -> Vec<u8> {
        let mut bytes = LABEL.to_vec();
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&self.fence.as_u64().to_be_bytes());
        bytes.extend_from_slice(&outcome.status.as_u16().to_be_bytes());
        bytes.push(u8::from(outcome.is_interim));
        bytes.extend_from_slice(key_id.as_bytes());
        bytes
    }
}

impl fmt::Display for OpenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not what this build seals",
            Self::NoKey => "the key ring does not have its key",
            Self::Dropped => "its tenant was dropped",
            Self::Plain => {
                "it is not sealed: somebody without the keys wrote it; if it is an outcome from before \
                 sealing, or of an application that completes records itself, set `require = false` under \
                 [sealing]"
            }
            Self::Altered => "it was altered, or belongs to another record or attempt",
        })
    }
}

impl std::error::Error for OpenFailure {}
