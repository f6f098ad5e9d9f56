//! The secrets that key fingerprints.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Tenant;

/// Keys fingerprints with a secret (HMAC), so that read access to the store does not reveal request
/// contents.
///
/// Without a secret a fingerprint is a plain digest: anyone who can read the store can test guesses at
/// a short body. All processes that share a store share its secrets.
#[derive(Clone)]
pub struct Secret {
    id: SecretId,
    mac: Hmac<Sha256>,
    tenant: Option<Tenant>,
}

/// Id of the secret that keyed a fingerprint; stored with it, and reveals nothing of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId([u8; Self::BYTES]);

/// The secrets of a service. The first that fits a tenant keys what is taken now; every one compares
/// with what it keyed. To rotate, put a new one first and keep the old ones until what they keyed is
/// past its retention.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<Secret>);

/// Error for bytes that cannot be a secret, or secrets that cannot form a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretError(&'static str);

/// Input of the digest that makes an id, so that an id equals no fingerprint.
const ID_LABEL: &[u8] = b"firstwrite fingerprint secret id";

impl Secret {
    /// Minimum length: 128 bits; fewer could be found by brute force.
    pub const BYTES_MIN: usize = 16;

    /// Makes a secret from at least 16 bytes that cannot be guessed; 32 random ones are a good choice.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < Self::BYTES_MIN {
            return Err(SecretError("a secret has at least 16 bytes"));
        }
        // Not a test of chance: what a placeholder looks like.
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(SecretError("a secret is drawn at random, not one byte repeated"));
        }
        let mac = Hmac::<Sha256>::new_from_slice(bytes).expect("HMAC takes a key of any length");
        let digest: [u8; 32] = mac.clone().chain_update(ID_LABEL).finalize().into_bytes().into();
        let mut id = [0; SecretId::BYTES];
        id.copy_from_slice(&digest[..SecretId::BYTES]);
        Ok(Self { id: SecretId(id), mac, tenant: None })
    }

    /// Restricts the secret to this tenant's requests, which it keys before any general secret. Once it is
    /// destroyed, nothing is left by which they could be guessed at.
    #[must_use]
    pub fn only_for(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Returns the id stored with the fingerprints that this secret keyed.
    pub const fn id(&self) -> SecretId {
        self.id
    }

    /// Digests the pieces as one message.
    pub(super) fn digest(&self, pieces: &[&[u8]]) -> [u8; 32] {
        // The key's own two blocks were hashed once, in `new`.
        let mac = pieces.iter().fold(self.mac.clone(), Mac::chain_update);
        mac.finalize().into_bytes().into()
    }
}

impl SecretId {
    /// Enough that two secrets of one store do not share an id by chance; every record carries one.
    pub const BYTES: usize = 5;

    /// Restores an id from its stored bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl Secrets {
    /// Makes a list of secrets, tried in this order; it may be empty.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, SecretError> {
        for (index, secret) in secrets.iter().enumerate() {
            if secrets[..index].iter().any(|other| other.id == secret.id) {
                return Err(SecretError("a secret stands twice in the list"));
            }
        }
        Ok(Self(secrets))
    }

    /// Returns true if there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret that keys the fingerprints of `tenant` now.
    pub fn for_taking(&self, tenant: &Tenant) -> Option<&Secret> {
        let owner = tenant.owner();
        let own = self.0.iter().find(|secret| secret.tenant.as_ref() == Some(&owner));
        own.or_else(|| self.0.iter().find(|secret| secret.tenant.is_none()))
    }

    /// The secrets that may have keyed a fingerprint of `tenant`.
    pub(super) fn of<'a>(&'a self, tenant: &Tenant) -> impl Iterator<Item = &'a Secret> {
        let owner = tenant.owner();
        self.0.iter().filter(move |it| it.tenant.as_ref().is_none_or(|own| *own == owner))
    }
}

impl IntoIterator for Secrets {
    type Item = Secret;
    type IntoIter = std::vec::IntoIter<Secret>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<Secret> for Secrets {
    fn from(secret: Secret) -> Self {
        Self(vec![secret])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SecretError {}
