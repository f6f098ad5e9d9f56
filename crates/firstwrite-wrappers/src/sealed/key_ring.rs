//! The keys with which outcomes are sealed.

use std::collections::BTreeSet;
use std::fmt;

use firstwrite_core::codec::hex;
use firstwrite_core::{Secret, Secrets, Tenant};
use ring::hkdf;
use zeroize::Zeroizing;

/// Keys by id, and the tenants that were dropped.
///
/// Settings for a tenant also apply to keys that are [bound to](Tenant::bound_to) its principals. The first
/// key that fits a tenant seals; every key opens the outcomes that it sealed. To rotate, put a new key
/// first and keep the old ones until their outcomes are past their retention.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<SealingKey>,
    /// By owner.
    dropped: BTreeSet<Tenant>,
    reads_plain: bool,
}

/// A secret of 32 bytes with an id. Each tenant's outcomes are sealed with a key derived from it.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    secret: Zeroizing<[u8; 32]>,
    tenant: Option<Tenant>,
}

/// Error for an invalid key or key ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRingError(&'static str);

/// Error for a tenant for which nothing may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped;

/// Separates the secrets of fingerprints from the keys that seal.
const FINGERPRINT_LABEL: &[u8] = b"firstwrite fingerprint secret 1";

impl SealingKey {
    /// Ids are names in configuration, such as `2026-11`; each outcome carries one.
    pub const ID_BYTES_MAX: usize = 32;

    /// A key of 32 bytes drawn at random, such as `openssl rand -hex 32` prints.
    pub fn new(id: &str, secret: [u8; 32]) -> Result<Self, KeyRingError> {
        let secret = Zeroizing::new(secret);
        if !Self::is_id(id) {
            return Err(KeyRingError("a key's id is 1 to 32 visible ASCII characters"));
        }
        // Not a test of randomness: it recognises a placeholder.
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err(KeyRingError("a key is 32 bytes drawn at random, not one byte repeated"));
        }
        Ok(Self { id: id.to_owned(), secret, tenant: None })
    }

    /// Makes a key from 64 hexadecimal digits.
    pub fn from_hex(id: &str, digits: &str) -> Result<Self, KeyRingError> {
        const FORM: KeyRingError = KeyRingError("a key is 64 hexadecimal digits");
        let mut secret = Zeroizing::new([0; 32]);
        if !hex::decode_into(digits.trim().as_bytes(), &mut *secret) {
            return Err(FORM);
        }
        Self::new(id, *secret)
    }

    /// Restricts the key to this tenant, whose outcomes are then sealed with it before any general key.
    /// Once the key is off the ring and destroyed, what it sealed can never be opened.
    #[must_use]
    pub fn only_for(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Returns true if it is the own key of the tenant `owner`.
    fn is_of(&self, owner: &Tenant) -> bool {
        self.tenant.as_ref().is_some_and(|tenant| tenant.owner() == *owner)
    }

    /// Derives the secret that keys fingerprints if no other is configured.
    fn fingerprint_secret(&self) -> Option<Secret> {
        let extracted =
            hkdf::Salt::new(hkdf::HKDF_SHA256, FINGERPRINT_LABEL).extract(self.secret());
        let mut bytes = Zeroizing::new([0; 32]);
        extracted.expand(&[], hkdf::HKDF_SHA256).ok()?.fill(&mut bytes[..]).ok()?;
        let secret = Secret::new(&bytes[..]).ok()?;
        Some(match &self.tenant {
            Some(tenant) => secret.only_for(tenant.owner()),
            None => secret,
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.secret[..]
    }

    pub(super) fn is_id(text: &str) -> bool {
        (1..=Self::ID_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

impl KeyRing {
    /// Makes a ring with at least one key that is not restricted to one tenant, and no id twice.
    pub fn new(keys: Vec<SealingKey>) -> Result<Self, KeyRingError> {
        if keys.iter().all(|key| key.tenant.is_some()) {
            return Err(KeyRingError(
                "a key ring needs a key for tenants who have none of their own",
            ));
        }
        let ids: BTreeSet<&str> = keys.iter().map(SealingKey::id).collect();
        if ids.len() < keys.len() {
            return Err(KeyRingError("two keys have one id"));
        }
        Ok(Self { keys, dropped: BTreeSet::new(), reads_plain: false })
    }

    /// Reads unsealed outcomes as they are. Without this they are refused: anyone who can write to the
    /// store could replace a sealed one.
    ///
    /// Use it as long as outcomes from before sealing exist, and where an application completes records by
    /// itself, in its own transaction or by SQL.
    #[must_use]
    pub fn reading_plain(mut self) -> Self {
        self.reads_plain = true;
        self
    }

    /// Returns the secrets that key the fingerprints of requests, each derived from a key of the ring: they
    /// rotate with it, and a tenant's own secret disappears with its key.
    ///
    /// Fails if two keys are the same.
    pub fn fingerprint_secrets(&self) -> Result<Secrets, KeyRingError> {
        let secrets: Option<Vec<Secret>> =
            self.keys.iter().map(SealingKey::fingerprint_secret).collect();
        let secrets = secrets.ok_or(KeyRingError("no cryptography"))?;
        Secrets::new(secrets).map_err(|_same| KeyRingError("two ids have one key"))
    }

    /// Neither opens nor seals outcomes of these tenants.
    ///
    /// This holds only for this ring and as long as it lists them: a general key can still derive theirs.
    /// Only the destruction of a key [for one tenant](SealingKey::only_for) cannot be undone.
    #[must_use]
    pub fn dropping(mut self, tenants: impl IntoIterator<Item = Tenant>) -> Self {
        self.dropped.extend(tenants.into_iter().map(|tenant| tenant.owner()));
        self
    }

    pub(super) fn is_dropped(&self, tenant: &Tenant) -> bool {
        self.dropped.contains(&tenant.owner())
    }

    pub(super) fn reads_plain(&self) -> bool {
        self.reads_plain
    }

    /// The key that seals for `tenant`.
    pub(super) fn for_writing(&self, tenant: &Tenant) -> Result<&SealingKey, Dropped> {
        if self.is_dropped(tenant) {
            return Err(Dropped);
        }
        let owner = tenant.owner();
        let own = self.keys.iter().find(|key| key.is_of(&owner));
        own.or_else(|| self.keys.iter().find(|key| key.tenant.is_none())).ok_or(Dropped)
    }

    /// The key by this id, if it may open for `tenant`.
    pub(super) fn for_reading(&self, id: &str, tenant: &Tenant) -> Option<&SealingKey> {
        let owner = tenant.owner();
        let fits = |key: &&SealingKey| key.tenant.is_none() || key.is_of(&owner);
        self.keys.iter().find(|key| key.id == id).filter(fits)
    }
}

impl fmt::Debug for SealingKey {
    /// Never the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(SealingKey::id).collect();
        f.debug_struct("KeyRing")
            .field("keys", &ids)
            .field("dropped", &self.dropped.len())
            .field("reads_plain", &self.reads_plain)
            .finish()
    }
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for KeyRingError {}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tenant was dropped from the key ring")
    }
}

impl std::error::Error for Dropped {}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(first: u8) -> [u8; 32] {
        std::array::from_fn(|place| first.wrapping_add(u8::try_from(place).unwrap()))
    }

    fn key(id: &str) -> SealingKey {
        SealingKey::new(id, secret(1)).unwrap()
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[test]
    fn a_secret_is_never_shown() {
        let key = SealingKey::from_hex("k", &"ab0f".repeat(16)).unwrap();
        let ring = KeyRing::new(vec![key.clone()]).unwrap().dropping([tenant("acme")]);
        for shown in [format!("{key:?}"), format!("{ring:?}")] {
            assert!(shown.contains("\"k\""), "{shown}");
            for part in ["ab0f", "171", "acme"] {
                assert!(!shown.contains(part), "{shown}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_key_or_a_ring_is_refused() {
        for digits in ["", "ab", &"g".repeat(64), &"é".repeat(32), &"00".repeat(32)] {
            assert!(SealingKey::from_hex("k", digits).is_err(), "{digits}");
        }
        for id in ["", "a b", "ü", &"k".repeat(33)] {
            assert!(SealingKey::new(id, secret(1)).is_err(), "{id}");
        }
        assert!(KeyRing::new(vec![]).is_err());
        assert!(KeyRing::new(vec![key("a"), key("a")]).is_err());
        assert!(KeyRing::new(vec![key("a").only_for(tenant("acme"))]).is_err());
        let upper = SealingKey::from_hex("k", &"AB0F".repeat(16)).unwrap();
        assert_eq!(upper.secret()[..2], [0xab, 0x0f]);
    }

    #[test]
    fn the_first_key_that_fits_seals_and_every_key_opens() {
        let own = key("own").only_for(tenant("acme"));
        let ring = KeyRing::new(vec![key("new"), key("old"), own]).unwrap();
        let seals = |name| ring.for_writing(&tenant(name)).unwrap().id().to_owned();
        assert_eq!((seals("acme").as_str(), seals("other").as_str()), ("own", "new"));
        let opens = |id, name| ring.for_reading(id, &tenant(name)).is_some();
        assert!(opens("old", "acme") && opens("new", "other") && opens("own", "acme"));
        assert!(!opens("own", "other") && !opens("gone", "acme"));
        let ring = ring.dropping([tenant("acme")]);
        assert!(ring.for_writing(&tenant("acme")).is_err() && ring.is_dropped(&tenant("acme")));
        assert!(ring.for_writing(&tenant("other")).is_ok());
    }

    #[test]
    fn what_holds_for_a_tenant_holds_for_keys_bound_to_its_principals() {
        for name in ["acme", "a/b", &"x".repeat(255)] {
            let plain = tenant(name);
            for principal in ["alice", &"y".repeat(300)] {
                let bound = plain.bound_to(principal);
                let own = key("own").only_for(plain.clone());
                let ring = KeyRing::new(vec![key("general"), own]).unwrap();
                assert_eq!(ring.for_writing(&bound).unwrap().id(), "own", "{bound}");
                assert!(ring.for_reading("own", &bound).is_some(), "{bound}");
                let stranger = tenant("other").bound_to(principal);
                assert!(ring.for_reading("own", &stranger).is_none(), "{stranger}");
                let ring = ring.dropping([plain.clone()]);
                assert!(ring.is_dropped(&bound) && ring.for_writing(&bound).is_err(), "{bound}");
                assert!(!ring.is_dropped(&stranger), "{stranger}");
            }
        }
    }

    #[test]
    fn fingerprints_are_keyed_by_secrets_that_rotate_with_the_ring() {
        let general = |id, first| SealingKey::new(id, secret(first)).unwrap();
        let own = general("own", 3).only_for(tenant("acme"));
        let secrets = |keys| KeyRing::new(keys).unwrap().fingerprint_secrets().unwrap();
        let taken = |secrets: &Secrets, name| secrets.for_taking(&tenant(name)).unwrap().id();
        let before = secrets(vec![general("old", 1), own.clone()]);
        let after = secrets(vec![general("new", 2), general("old", 1), own]);
        assert_ne!(taken(&before, "other"), taken(&after, "other"));
        // By the key and not by its name or place.
        assert_eq!(taken(&secrets(vec![general("new", 1)]), "other"), taken(&before, "other"));
        assert_eq!(taken(&before, "/acme/alice"), taken(&after, "acme"));
        assert_ne!(taken(&after, "acme"), taken(&after, "other"));
        let twice = KeyRing::new(vec![general("a", 1), general("b", 1)]).unwrap();
        assert!(twice.fingerprint_secrets().is_err());
    }
}
