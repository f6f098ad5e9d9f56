//! Finds the records that an operator's input names: a tenant and a key, a record id as logs have it, or a key
//! whose tenant is not known.

use std::collections::BTreeSet;

use firstwrite_core::{Found, Key, RecordId, Store, Tenant, UsagePage};

/// Largest number of pages of records to read for the names of tenants: five million records, which take about
/// as long as a person waits.
const PAGES_MAX: usize = 500;

/// Record that the operator asked for.
#[derive(Debug)]
pub(super) enum Wanted {
    /// One key of one tenant.
    Exactly(RecordId),
    /// A key of whichever tenant, or a record's id: both may have the same form.
    Anywhere { id: Option<RecordId>, key: Option<Key> },
}

/// Result of a search.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) found: Vec<Found>,
    /// True if all tenants were searched.
    pub(super) is_complete: bool,
}

impl Wanted {
    /// Reads one or two words.
    pub(super) fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [tenant, key] => {
                let tenant = Tenant::new(tenant).map_err(|error| format!("TENANT: {error}"))?;
                let key = Key::new(key).map_err(|error| format!("KEY: {error}"))?;
                Ok(Self::Exactly(RecordId::of(&tenant, &key)))
            }
            [word] => {
                let id = record_id(word);
                let key = match Key::new(word) {
                    Ok(key) => Some(key),
                    Err(error) if id.is_none() => return Err(format!("KEY: {error}")),
                    Err(_) => None,
                };
                Ok(Self::Anywhere { id, key })
            }
            _ => Err("a tenant and a key are needed, or one of a key and a record id".to_owned()),
        }
    }
}

fn record_id(word: &str) -> Option<RecordId> {
    crate::command::record_id(word).ok()
}

/// Looks for what has this id, or stands under this key for any tenant.
pub(super) async fn anywhere(
    store: &dyn Store,
    id: Option<RecordId>,
    key: Option<&Key>,
) -> anyhow::Result<Search> {
    if let Some(id) = id
        && let Some(found) = store.get(id).await?
    {
        return Ok(Search { found: vec![found], is_complete: true });
    }
    let Some(key) = key else { return Ok(Search { found: Vec::new(), is_complete: true }) };
    let mut search = Search { found: Vec::new(), is_complete: false };
    let (mut known, mut after) = (BTreeSet::new(), None);
    for _ in 0..PAGES_MAX {
        let page = store.usage(after, UsagePage::LIMIT_MAX).await?;
        for (tenant, _) in page.tenants {
            let id = RecordId::of(&tenant, key);
            if known.insert(tenant)
                && let Some(found) = store.get(id).await?
            {
                search.found.push(found);
            }
        }
        after = page.next;
        if after.is_none() {
            search.is_complete = true;
            break;
        }
    }
    Ok(search)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_two_words_say_what_is_meant() {
        let read = |words: &[&str]| {
            Wanted::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert!(matches!(read(&["acme", "order-1"]), Ok(Wanted::Exactly(_))));
        assert!(matches!(read(&["order-1"]), Ok(Wanted::Anywhere { id: None, key: Some(_) })));
        let id = "8fb62d20e1c18e12c4ab64d7a10f2e35";
        assert!(matches!(read(&[id]), Ok(Wanted::Anywhere { id: Some(_), key: Some(_) })));
        for wrong in [&[][..], &["a b"], &["acme", "a b"], &["a", "b", "c"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
