//! The `[sealing]` section: what outcomes are encrypted with at rest.

use std::fmt::Display;

use firstwrite_core::{Secrets, Tenant};
use firstwrite_wrappers::{KeyRing, SealingKey};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::UsageError;
use super::given::Given;

/// The `[sealing]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealingSection {
    /// Keys. The first that is for all tenants seals; all of them open.
    #[serde(deserialize_with = "at_least_one")]
    keys: Vec<KeySection>,
    /// Tenants whose outcomes are no longer opened.
    #[serde(default)]
    dropped_tenants: Vec<String>,
    /// Refuses outcomes that are not sealed. Set it to `false` while outcomes from before sealing stand, and
    /// where an application completes records itself. Default: `true`.
    require: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeySection {
    /// Name of the key, which stands beside what it sealed.
    id: String,
    /// The key: 64 hexadecimal digits.
    key: Given,
    /// Tenant whose outcomes it seals. Without it, the key is for all tenants.
    tenant: Option<String>,
}

impl SealingSection {
    /// The keys; none where there is no such section.
    pub(crate) fn ring(&self) -> Result<Option<KeyRing>, UsageError> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let keys: Result<Vec<SealingKey>, UsageError> =
            self.keys.iter().map(KeySection::read).collect();
        let dropped: Result<Vec<Tenant>, UsageError> =
            self.dropped_tenants.iter().map(|name| tenant(name)).collect();
        let ring = KeyRing::new(keys?).map_err(|error| wrong("sealing.keys", error))?;
        let ring = ring.dropping(dropped?);
        Ok(Some(if self.require.unwrap_or(true) { ring } else { ring.reading_plain() }))
    }

    /// Returns the secrets that key fingerprints if no others are configured: derived from the keys.
    pub(super) fn fingerprint_secrets(&self) -> Result<Secrets, UsageError> {
        let Some(ring) = self.ring()? else { return Ok(Secrets::default()) };
        ring.fingerprint_secrets().map_err(|error| wrong("sealing.keys", error))
    }
}

/// A section without keys would leave outcomes in the clear beside those that are sealed.
fn at_least_one<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<KeySection>, D::Error> {
    let keys = Vec::deserialize(from)?;
    if keys.is_empty() {
        return Err(Error::custom(
            "at least one key is needed; without [sealing], nothing is sealed",
        ));
    }
    Ok(keys)
}

impl KeySection {
    fn read(&self) -> Result<SealingKey, UsageError> {
        let place = format!("sealing.keys: {}", self.id.escape_debug());
        let digits = self.key.read().map_err(|what| wrong(&place, what))?;
        let key =
            SealingKey::from_hex(&self.id, digits.trim()).map_err(|what| wrong(&place, what))?;
        Ok(match &self.tenant {
            Some(name) => key.only_for(tenant(name)?),
            None => key,
        })
    }
}

fn tenant(name: &str) -> Result<Tenant, UsageError> {
    Tenant::new(name).map_err(|error| wrong("sealing", error))
}

fn wrong(place: &str, what: impl Display) -> UsageError {
    UsageError::new(format!("{place}: {what}"))
}
