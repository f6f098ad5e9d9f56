//! The contract of a gateway with its store: settings that decide under which record a key stands, and by which
//! key the API knows a request. After a change, keys that were used are unknown here, or at the API, and their
//! requests would run again. So the store remembers these settings, and a start or a reload with others is
//! refused until the operator accepts it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use firstwrite_core::Store;
use firstwrite_core::documents::{DocumentChange, DocumentContent, DocumentName, DocumentStep};
use firstwrite_gateway::{ForwardedKey, Rules};
use serde::{Deserialize, Serialize};

mod bindings;

use bindings::Bindings;

/// Reaction to settings that are not those of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The start or the reload fails.
    Refuse,
    /// The operator says that every key used so far may run again.
    Accept,
}

/// The settings, as the store keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contract {
    /// Name of the service; gateways of several services may share a store.
    service: String,
    forward_key: String,
    /// True if keys of operations that have no name are bound to principals.
    binds_others: bool,
    /// The same for the operations that have one.
    binds: BTreeMap<String, bool>,
    /// What names callers; none in notes from before it was kept.
    #[serde(default)]
    tenants: Option<Vec<String>>,
    /// Where the credentials of callers stand; none in notes from before it was kept.
    #[serde(default)]
    places: Option<Vec<String>>,
}

const KIND: &str = "gateway";

impl Contract {
    pub(super) fn of(rules: &Rules) -> Self {
        let (binds_others, binds) = rules.operations.bindings();
        Self {
            service: rules.service_name.clone().unwrap_or_default(),
            forward_key: match rules.forwarding.key {
                ForwardedKey::Derived => "derived",
                ForwardedKey::Original => "original",
                ForwardedKey::Nothing => "nothing",
            }
            .to_owned(),
            tenants: Some(rules.tenants.naming(binds_others || binds.values().any(|is| *is))),
            places: Some(rules.tenants.places()),
            binds_others,
            binds,
        }
    }

    /// Compares with the settings that `store` remembers and keeps these. A store without documents remembers
    /// nothing.
    pub(super) async fn keep(&self, store: &dyn Store, changed: Changed) -> anyhow::Result<()> {
        let Some(documents) = store.documents() else { return Ok(()) };
        let name = DocumentName::of(&["contract", &self.service]);
        let found = documents.read(KIND, &[name]).await?.pop().flatten();
        let known =
            found.as_ref().map(|found| serde_json::from_slice::<Self>(&found.content.bytes));
        let known = known.transpose().context("the store's note of the gateway's settings")?;
        if known.as_ref() == Some(self) {
            return Ok(());
        }
        let differences = known.map(|known| self.differences(&known)).unwrap_or_default();
        if !differences.is_empty() {
            let all = differences.join("; ");
            if changed == Changed::Refuse {
                bail!(
                    "{all}: keys that were used before would run again; set it back, or start once with \
                     --accept-changed-keys when every key is past its retention"
                );
            }
            tracing::warn!("{all}: keys that were used before may run again, as accepted");
        }
        let content = DocumentContent { bytes: serde_json::to_vec(self)?, expires_at: None };
        let step = match found {
            Some(found) => DocumentStep::Replace(found.edition, content),
            None => DocumentStep::Add(content),
        };
        let put = documents.put(KIND, &[DocumentChange { name, step }]).await?;
        if put == [None] {
            bail!("another gateway wrote its settings at the same moment; start again");
        }
        Ok(())
    }

    /// Names what differs from `known` in a way that matters.
    fn differences(&self, known: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.forward_key != known.forward_key {
            let (was, is) = (&known.forward_key, &self.forward_key);
            all.push(format!("forward_key was \"{was}\" and is \"{is}\""));
        }
        all.extend(self.bindings().differences(&known.bindings()));
        if let (Some(was), Some(is)) = (&known.tenants, &self.tenants)
            && !is_extended(was, is)
        {
            all.push(format!(
                "tenants were named by {} and are by {}",
                was.join("; "),
                is.join("; ")
            ));
        }
        if let (Some(was), Some(is)) = (&known.places, &self.places)
            && was != is
        {
            let said = |places: &[String]| match places {
                [] => "wherever they stand".to_owned(),
                places => places.join("; "),
            };
            let (was, is) = (said(was), said(is));
            all.push(format!("credentials of tenants were taken from {was} and are from {is}"));
        }
        all
    }

    fn bindings(&self) -> Bindings<'_> {
        Bindings::new(self.binds_others, &self.binds)
    }
}

/// Returns true if `is` names every caller as `was` did: there are only more issuers beside others. A token of an
/// issuer that is not known is refused.
fn is_extended(was: &[String], is: &[String]) -> bool {
    let is_issuer = |text: &String| text.starts_with("jwt ");
    let is_new = |text: &&String| is_issuer(text) && !was.contains(text);
    let had_issuers = was.iter().any(is_issuer);
    is.iter().filter(|text| !(had_issuers && is_new(text))).eq(was)
}

#[cfg(test)]
mod tests;
