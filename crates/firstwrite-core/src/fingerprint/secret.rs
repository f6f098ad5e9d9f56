//! The secret that keys fingerprints.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What makes fingerprints useless to somebody who only reads the store.
///
/// Without a secret a fingerprint is a plain digest: whoever reads the store can guess at a short
/// body and see whether it fits. All processes that share a store share its secret.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// A secret of fewer than [`Secret::BYTES_MIN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretError;

impl Secret {
    /// 128 bits: fewer could be found by trying.
    pub const BYTES_MIN: usize = 16;

    /// From at least 16 bytes nobody can guess; 32 random ones are a good choice.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < Self::BYTES_MIN {
            return Err(SecretError);
        }
        Ok(Self(Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length")))
    }

    pub(super) fn digest(&self, message: &[u8]) -> [u8; 32] {
        // The key's own two blocks were hashed once, in `new`.
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a secret has at least {} bytes", Secret::BYTES_MIN)
    }
}

impl std::error::Error for SecretError {}
