//! Keys by which the API behind a gateway may know a request.

use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{Record, State};
use firstwrite_gateway::FORWARDED_STEP;
use serde::Serialize;

use crate::config::ForwardKey;

/// The key that a gateway passes on under one setting.
#[derive(Debug, Serialize)]
pub(super) struct UpstreamKey {
    forward_key: ForwardKey,
    /// `null` if none is passed on.
    key: Option<String>,
}

/// Returns the keys to ask the API's books by, while the answer is not known here: the one of `setting`, or one
/// for each setting, since a record does not say which its gateway had.
pub(super) fn of(record: &Record, setting: Option<ForwardKey>) -> Vec<UpstreamKey> {
    if let State::Completed { .. } = record.state {
        return Vec::new();
    }
    let settings = ForwardKey::ALL.into_iter().filter(|one| setting.is_none_or(|it| it == *one));
    let upstream_key = |forward_key| UpstreamKey { forward_key, key: key(record, forward_key) };
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
        [UpstreamKey { key: Some(key), .. }] => {
            Some(format!("a gateway with this file passes on the key {key}"))
        }
        [UpstreamKey { key: None, .. }] => Some(
            "a gateway with this file passes no key on; find the effect by what the request asked for"
                .to_owned(),
        ),
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
