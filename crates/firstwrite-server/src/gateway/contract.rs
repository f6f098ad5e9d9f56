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
        let says = |bound| if bound { "bound" } else { "not bound" };
        let mut differs = |name: &str, was: bool, is: bool| {
            if was != is {
                let (was, is) = (says(was), says(is));
                all.push(format!("keys of {name} were {was} to principals and are {is}"));
            }
        };
        differs("operations without a section", known.binds_others, self.binds_others);
        let names: std::collections::BTreeSet<_> =
            known.binds.keys().chain(self.binds.keys()).collect();
        for name in names {
            differs(name, known.binds(name), self.binds(name));
        }
        if let (Some(was), Some(is)) = (&known.tenants, &self.tenants)
            && !is_extended(was, is)
        {
            all.push(format!(
                "tenants were named by {} and are by {}",
                was.join("; "),
                is.join("; ")
            ));
        }
        all
    }

    fn binds(&self, name: &str) -> bool {
        self.binds.get(name).copied().unwrap_or(self.binds_others)
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
mod tests {
    use firstwrite_core::{MemoryStore, Timestamp};

    use super::*;

    fn contract(forward_key: &str, binds_others: bool, binds: &[(&str, bool)]) -> Contract {
        let binds = binds.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
        let (service, forward_key) = (String::new(), forward_key.to_owned());
        Contract { service, forward_key, binds_others, binds, tenants: None }
    }

    fn memory() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(|| Timestamp::from_millis(0)))
    }

    fn naming(tenants: &[&str]) -> Contract {
        let tenants = tenants.iter().map(|text| (*text).to_owned()).collect();
        Contract { tenants: Some(tenants), ..contract("derived", false, &[]) }
    }

    #[tokio::test]
    async fn the_key_that_is_passed_on_is_told_where_there_is_one_service() {
        let store = [memory()];
        assert_eq!(Contract::forward_key_of(&*store[0]).await, None);
        contract("original", false, &[]).keep(&store, Changed::Refuse).await.unwrap();
        assert_eq!(Contract::forward_key_of(&*store[0]).await, Some(ForwardKey::Original));
        contract("nothing", false, &[]).keep(&store, Changed::Accept).await.unwrap();
        assert_eq!(Contract::forward_key_of(&*store[0]).await, Some(ForwardKey::Nothing));
        let other = Contract { service: "other".into(), ..contract("nothing", false, &[]) };
        other.keep(&store, Changed::Refuse).await.unwrap();
        assert_eq!(Contract::forward_key_of(&*store[0]).await, None, "two services");
    }

    #[tokio::test]
    async fn other_names_for_callers_are_refused_until_they_are_accepted() {
        let store = [memory()];
        // A note from before names were kept.
        let former = contract("derived", false, &[]);
        former.keep(&store, Changed::Refuse).await.unwrap();
        let mut last = naming(&["api-keys", "jwt of a by sub"]);
        last.keep(&store, Changed::Refuse).await.unwrap();
        let more = naming(&["api-keys", "jwt of a by sub", "jwt of b by sub"]);
        more.keep(&store, Changed::Refuse).await.unwrap();
        last = more;
        for other in [
            &["authorization"][..],
            &["api-keys", "jwt of a by sub"],
            &["api-keys", "jwt of a by sub", "jwt of b by sub", "authorization"],
            &["jwt of a by sub", "jwt of b by sub", "api-keys"],
            &["api-keys", "jwt of a by /org", "jwt of b by sub"],
            &["authorization keyed by secret 1234"],
            &["authorization"],
            &["jwt of a by sub"],
        ] {
            let other = naming(other);
            let refused = other.keep(&store, Changed::Refuse).await.unwrap_err().to_string();
            assert!(refused.contains("tenants were named by"), "{refused}");
            last.keep(&store, Changed::Refuse).await.unwrap();
            other.keep(&store, Changed::Accept).await.unwrap();
            last = other;
        }
    }

    #[tokio::test]
    async fn a_change_that_makes_used_keys_unknown_is_refused_until_it_is_accepted() {
        let store = [memory()];
        let first = contract("derived", false, &[("POST /pay", true)]);
        first.keep(&store, Changed::Refuse).await.unwrap();
        first.keep(&store, Changed::Refuse).await.unwrap();
        for (other, why) in [
            (contract("original", false, &[("POST /pay", true)]), "forward_key was \"derived\""),
            (contract("derived", false, &[]), "keys of POST /pay were bound"),
            (contract("derived", true, &[("POST /pay", true)]), "operations without a section"),
        ] {
            let refused = other.keep(&store, Changed::Refuse).await.unwrap_err().to_string();
            assert!(
                refused.contains(why) && refused.contains("--accept-changed-keys"),
                "{refused}"
            );
        }
        let second = contract("original", false, &[]);
        second.keep(&store, Changed::Accept).await.unwrap();
        second.keep(&store, Changed::Refuse).await.unwrap();
        assert!(first.keep(&store, Changed::Refuse).await.is_err());
    }

    #[tokio::test]
    async fn what_changes_no_key_and_other_services_are_let_in() {
        let store = [memory()];
        contract("derived", false, &[]).keep(&store, Changed::Refuse).await.unwrap();
        let named = contract("derived", false, &[("POST /pay", false)]);
        named.keep(&store, Changed::Refuse).await.unwrap();
        let other = Contract { service: "other".into(), ..contract("original", true, &[]) };
        other.keep(&store, Changed::Refuse).await.unwrap();
        named.keep(&store, Changed::Refuse).await.unwrap();
    }

    /// While records move, either store may be the one that knows.
    #[tokio::test]
    async fn what_one_of_two_stores_remembers_is_written_into_both_or_neither() {
        let (old, new) = (memory(), memory());
        let first = contract("derived", false, &[]);
        first.keep(&[Arc::clone(&old)], Changed::Refuse).await.unwrap();
        let other = contract("original", false, &[]);
        for both in [[Arc::clone(&old), Arc::clone(&new)], [Arc::clone(&new), Arc::clone(&old)]] {
            let refused = other.keep(&both, Changed::Refuse).await.unwrap_err().to_string();
            assert!(refused.contains("forward_key was \"derived\""), "{refused}");
        }
        // The refusal left nothing behind in the new one.
        first.keep(&[Arc::clone(&new), old], Changed::Refuse).await.unwrap();
        assert!(other.keep(&[new], Changed::Refuse).await.is_err(), "it moved");
    }
}
