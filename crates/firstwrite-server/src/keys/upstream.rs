//! Keys by which the API behind a gateway may know a request.

use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{Record, State, Store};
use firstwrite_gateway::FORWARDED_STEP;
use serde::Serialize;

use crate::config::ForwardKey;
use crate::gateway;

/// The key that a gateway passes on under one setting.
#[derive(Debug, Serialize)]
pub(super) struct UpstreamKey {
    forward_key: ForwardKey,
    /// `null` if none is passed on.
    key: Option<String>,
    #[serde(skip)]
    known: Option<Known>,
}

/// The setting of the gateway that made a record, and how it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    forward_key: ForwardKey,
    teller: Teller,
}

#[derive(Clone, Copy, Debug)]
enum Teller {
    /// The gateway's file.
    File,
    /// The store, which remembers the settings of one service and of no other.
    Store,
}

impl Known {
    pub(super) fn from_file(forward_key: ForwardKey) -> Self {
        Self { forward_key, teller: Teller::File }
    }

    /// Asks the store, unless the file has told. A store that cannot say it is no reason to show less of the rest.
    pub(super) async fn or_of(told: Option<Self>, store: &dyn Store) -> Option<Self> {
        if told.is_some() {
            return told;
        }
        let forward_key = gateway::remembered_forward_key(store).await;
        forward_key.map(|forward_key| Self { forward_key, teller: Teller::Store })
    }
}

/// Returns the keys to ask the API's books by, while the answer is not known here: the one of `setting`, or one
/// for each setting, since a record does not say which its gateway had.
pub(super) fn of(record: &Record, known: Option<Known>) -> Vec<UpstreamKey> {
    if let State::Completed { .. } = record.state {
        return Vec::new();
    }
    let fits = |one: &ForwardKey| known.is_none_or(|it| it.forward_key == *one);
    let settings = ForwardKey::ALL.into_iter().filter(fits);
    let upstream_key =
        |forward_key| UpstreamKey { forward_key, key: key(record, forward_key), known };
    settings.map(upstream_key).collect()
}

fn key(record: &Record, setting: ForwardKey) -> Option<String> {
    match setting {
        ForwardKey::Derived => wire_key_of(record.id, &record.key, FORWARDED_STEP).ok(),
        ForwardKey::Original => Some(record.key.as_str().to_owned()),
        ForwardKey::Nothing => None,
    }
}

/// Says in words by what to ask.
pub(super) fn for_people(keys: &[UpstreamKey]) -> Option<String> {
    match keys {
        [] => None,
        [UpstreamKey { key, known, .. }] => {
            let gateway = match known.map(|known| known.teller) {
                Some(Teller::Store) => "the gateway that this store remembers",
                Some(Teller::File) | None => "a gateway with this file",
            };
            Some(match key {
                Some(key) => format!("{gateway} passes on the key {key}"),
                None => format!(
                    "{gateway} passes no key on; find the effect by what the request asked for"
                ),
            })
        }
        several => {
            let named: Vec<String> = several.iter().map(UpstreamKey::with_setting).collect();
            let named = named.join(", or ");
            Some(format!("{named}; --config with the gateway's file tells which"))
        }
    }
}

impl UpstreamKey {
    fn with_setting(&self) -> String {
        let key = self.key.as_deref().unwrap_or("no key");
        let setting = match self.forward_key {
            ForwardKey::Derived => "\"derived\", the default",
            ForwardKey::Original => "\"original\"",
            ForwardKey::Nothing => "\"nothing\"",
        };
        format!("{key} (forward_key = {setting})")
    }
}
