//! Owners of keys, and the identity of a record.

mod bound;

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::Key;

/// Owner of keys; two tenants never share a record.
///
/// A tenant is derived from verified credentials and never from anything the caller can choose.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// Long enough for a URL-shaped subject or a digest, short enough for an index.
    pub const BYTES_MAX: usize = 255;

    /// A tenant of 1 to 255 bytes without control characters.
    pub fn new(name: &str) -> Result<Self, TenantError> {
        if name.is_empty() || name.len() > Self::BYTES_MAX || name.chars().any(char::is_control) {
            return Err(TenantError);
        }
        Ok(Self(name.into()))
    }

    /// The tenant's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.0)
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that cannot be a tenant: empty, over 255 bytes, or with control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantError;

impl fmt::Display for TenantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tenant is 1 to 255 bytes without control characters")
    }
}

impl std::error::Error for TenantError {}

/// The identity of a record: the first 16 bytes of SHA-256 over length-prefixed tenant and key.
///
/// Length prefixes keep (`a`, `bc`) apart from (`ab`, `c`). Shown in logs instead of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId([u8; 16]);

impl RecordId {
    /// Returns the id of the record under this tenant and key.
    pub fn of(tenant: &Tenant, key: &Key) -> Self {
        let mut hash = Sha256::new();
        for part in [tenant.as_str(), key.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// Returns the id under which stores keep the audit of a destination. No record has it: what is hashed for a record
    /// begins with the length of its tenant's name, and no name is that long.
    pub fn of_destination(name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(u64::MAX.to_be_bytes());
        hash.update(name.as_bytes());
        let digest = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// Restores an id from its 16 stored bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand: ids go into logs and headers of every request, and a formatter for each byte is slow.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let mut text = [0; 32];
        text.iter_mut().zip(digits).for_each(|(to, digit)| *to = DIGITS[usize::from(digit)]);
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tenant: &str, key: &str) -> RecordId {
        RecordId::of(&Tenant::new(tenant).unwrap(), &Key::parse(key).unwrap())
    }

    #[test]
    fn the_border_between_tenant_and_key_counts() {
        assert_ne!(id("a", "bc"), id("ab", "c"));
        assert_ne!(id("acme", "k-1"), id("globex", "k-1"));
        assert_eq!(id("acme", "k-1"), id("acme", "k-1"));
    }

    #[test]
    fn the_id_of_a_known_pair_never_changes() {
        // Other languages and SQL compute the same id: this value is part of the stored format.
        assert_eq!(id("acme", "order-1").to_string(), "ef56e51bcb051fa4a8c4edd56ee44b45");
    }

    #[test]
    fn a_tenant_is_printable_and_bounded() {
        assert!(Tenant::new("").is_err());
        assert!(Tenant::new(&"x".repeat(256)).is_err());
        assert!(Tenant::new("a\nb").is_err());
        assert!(Tenant::new("org:müller").is_ok());
    }
}
