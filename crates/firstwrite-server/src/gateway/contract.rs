//! The contract of a gateway with its store: settings that decide under which record a key stands, and by which
//! key the API knows a request. After a change, keys that were used are unknown here, or at the API, and their
//! requests would run again. So the store remembers these settings, and a start or a reload with others is
//! refused until the operator accepts it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use firstwrite_core::Store;
use firstwrite_core::documents::{
    Document, DocumentChange, DocumentContent, DocumentName, DocumentScan, DocumentStep, Expiry,
};
use firstwrite_gateway::{ForwardedKey, Rules};
use serde::{Deserialize, Serialize};

use crate::config::ForwardKey;

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
    /// Places of callers' credentials; none in notes from before they were kept.
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

    /// Compares with the settings that the stores remember and keeps these in all of them, or in none. A store
    /// without documents remembers nothing. While records move there are two.
    pub(super) async fn keep(
        &self,
        stores: &[Arc<dyn Store>],
        changed: Changed,
    ) -> anyhow::Result<()> {
        let name = DocumentName::of(&["contract", &self.service]);
        let mut changes = Vec::new();
        for documents in stores.iter().filter_map(|store| store.documents()) {
            let found = documents.read(KIND, &[name]).await?.pop().flatten();
            if let Some(step) = self.change(found, changed)? {
                changes.push((documents, DocumentChange { name, step }));
            }
        }
        for (documents, change) in changes {
            if documents.put(KIND, &[change]).await? == [None] {
                bail!("another gateway wrote its settings at the same moment; start again");
            }
        }
        Ok(())
    }

    /// Returns what to write over `found`, the note of a store; `None` if it says the same.
    fn change(
        &self,
        found: Option<Document>,
        changed: Changed,
    ) -> anyhow::Result<Option<DocumentStep>> {
        let known =
            found.as_ref().map(|found| serde_json::from_slice::<Self>(&found.content.bytes));
        let known = known.transpose().context("the store's note of the gateway's settings")?;
        if known.as_ref() == Some(self) {
            return Ok(None);
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
        Ok(Some(match found {
            Some(found) => DocumentStep::Replace(found.edition, content),
            None => DocumentStep::Add(content),
        }))
    }

    /// Returns the key that the gateway of `store` passes on, if the store remembers one service and no other.
    pub(super) async fn forward_key_of(store: &dyn Store) -> Option<ForwardKey> {
        let scan = DocumentScan { which: Expiry::Any, after: 0, limit: 2 };
        let page = store.documents()?.scan(KIND, scan).await.ok()?;
        match &page.documents[..] {
            [only] if page.next.is_none() => {
                let noted: Self = serde_json::from_slice(&only.content.bytes).ok()?;
                serde_json::from_value(noted.forward_key.into()).ok()
            }
            _ => None,
        }
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

/// Warns if a store remembers no settings: then nothing notices that they change.
pub(super) fn warn_if_forgotten(store: &dyn Store) {
    if store.documents().is_none() {
        tracing::warn!(
            "this store remembers no settings: a start with another forward_key, another bind_to_principal or other \
             names of tenants is not refused, and would run keys again that were used"
        );
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
