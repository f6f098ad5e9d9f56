//! The `[sealing]` section: what outcomes are encrypted with at rest.

use std::fmt::Display;

use firstwrite_core::Tenant;
use firstwrite_store::{KeyRing, SealingKey};
use serde::Deserialize;

use super::UsageError;
use super::given::Given;

/// The `[sealing]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealingSection {
    /// The first that is for all tenants seals; all of them open.
    #[serde(default)]
    keys: Vec<KeySection>,
    /// Tenants whose outcomes are not opened any more.
    #[serde(default)]
    dropped_tenants: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeySection {
    id: String,
    /// 64 hexadecimal digits, as `env:NAME` or `file:PATH`.
    key: Given,
    /// Whose outcomes it seals, if not everybody's.
    tenant: Option<String>,
}

impl SealingSection {
    /// The keys, if there are any.
    pub(crate) fn ring(&self) -> Result<Option<KeyRing>, UsageError> {
        if self.keys.is_empty() {
            if !self.dropped_tenants.is_empty() {
                return Err(wrong("sealing.dropped_tenants", "there are no keys to drop"));
            }
            return Ok(None);
        }
        let keys: Result<Vec<SealingKey>, UsageError> =
            self.keys.iter().map(KeySection::read).collect();
        let dropped: Result<Vec<Tenant>, UsageError> =
            self.dropped_tenants.iter().map(|name| tenant(name)).collect();
        let ring = KeyRing::new(keys?).map_err(|error| wrong("sealing.keys", error))?;
        Ok(Some(ring.dropping(dropped?)))
    }
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
