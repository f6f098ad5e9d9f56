//! The keys with which outcomes are sealed.

use std::collections::BTreeSet;
use std::fmt;

use firstwrite_core::Tenant;
use zeroize::Zeroizing;

/// Keys by id, and the tenants that were dropped.
///
/// The first key that fits a tenant seals; every key opens what was sealed with it. To rotate, put a new
/// key first and keep the old ones until what they sealed is past its retention.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<SealingKey>,
    dropped: BTreeSet<Tenant>,
}

/// A secret of 32 bytes with an id. Each tenant's outcomes are sealed with a key derived from it.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    secret: Zeroizing<[u8; 32]>,
    tenant: Option<Tenant>,
}

/// What cannot be a key, or a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRingError(&'static str);

/// Nothing may be written for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped;

impl SealingKey {
    /// Ids are names in configuration, such as `2026-11`; each outcome carries one.
    pub const ID_BYTES_MAX: usize = 32;

    /// A key of 32 bytes drawn at random, such as `openssl rand -hex 32` prints.
    pub fn new(id: &str, secret: [u8; 32]) -> Result<Self, KeyRingError> {
        let secret = Zeroizing::new(secret);
        if !Self::is_id(id) {
            return Err(KeyRingError("a key's id is 1 to 32 visible ASCII characters"));
        }
        // Not a test of chance: what a placeholder looks like.
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err(KeyRingError("a key is 32 bytes drawn at random, not one byte repeated"));
        }
        Ok(Self { id: id.to_owned(), secret, tenant: None })
    }

    /// The same from 64 hexadecimal digits.
    pub fn from_hex(id: &str, digits: &str) -> Result<Self, KeyRingError> {
        const FORM: KeyRingError = KeyRingError("a key is 64 hexadecimal digits");
        let digits: &[u8; 64] = digits.trim().as_bytes().try_into().map_err(|_length| FORM)?;
        let mut secret = Zeroizing::new([0; 32]);
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16).ok_or(FORM)?;
                *byte = *byte << 4 | u8::try_from(value).map_err(|_impossible| FORM)?;
            }
        }
        Self::new(id, *secret)
    }

    /// For this tenant alone, who is then sealed with it before any general key: take it off the ring
    /// and destroy it, and nobody can open what it sealed.
    #[must_use]
    pub fn only_for(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
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
    /// A ring with at least one key that is not one tenant's alone, and no id twice.
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
        Ok(Self { keys, dropped: BTreeSet::new() })
    }

    /// Opens and seals nothing of these tenants.
    ///
    /// That is this ring's word, and ends with the entry: who has a general key can derive theirs. Only
    /// the destruction of a key [for one tenant](SealingKey::only_for) cannot be taken back.
    #[must_use]
    pub fn dropping(mut self, tenants: impl IntoIterator<Item = Tenant>) -> Self {
        self.dropped.extend(tenants);
        self
    }

    pub(super) fn is_dropped(&self, tenant: &Tenant) -> bool {
        self.dropped.contains(tenant)
    }

    /// The key that seals for `tenant`.
    pub(super) fn for_writing(&self, tenant: &Tenant) -> Result<&SealingKey, Dropped> {
        if self.is_dropped(tenant) {
            return Err(Dropped);
        }
        let own = self.keys.iter().find(|key| key.tenant.as_ref() == Some(tenant));
        own.or_else(|| self.keys.iter().find(|key| key.tenant.is_none())).ok_or(Dropped)
    }

    /// The key by this id, if it may open for `tenant`.
    pub(super) fn for_reading(&self, id: &str, tenant: &Tenant) -> Option<&SealingKey> {
        let fits = |key: &&SealingKey| key.tenant.as_ref().is_none_or(|own| own == tenant);
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
        f.debug_struct("KeyRing").field("keys", &ids).field("dropped", &self.dropped.len()).finish()
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
}
