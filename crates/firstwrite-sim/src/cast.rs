//! Participants of a history: the tenant and its keys, and the header that numbers requests.

use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{Key, RecordId, Tenant};

use crate::front::MESSAGE_STEP;
use crate::terms::Path;

/// Operation of every request, as records store it.
pub(crate) const OPERATION: &str = "POST /pay";
/// The step under whose wire key an upstream is called: the gateway's.
pub(crate) const STEP: &str = "forward";

/// Header with the request's number in the history, read by the ledger alone.
pub(crate) const REQUEST_NUMBER: &str = "x-request-number";
/// Credentials of all callers.
pub(crate) const AUTHORIZATION: &str = "Bearer sim";

/// The tenant of all requests. The gateway derives it from the credentials.
pub(crate) fn tenant(path: Path) -> Tenant {
    let name = match path {
        Path::Library | Path::Atomic => "acme".to_owned(),
        Path::Gateway | Path::Sql => crate::front::gateway_tenant(),
    };
    Tenant::new(&name).expect("the name is one that the gateway gives")
}

/// Returns the wire key by which the provider knows the payment of a key.
pub(crate) fn wire_key(path: Path, at: usize) -> String {
    let step = if path == Path::Atomic { MESSAGE_STEP } else { STEP };
    let key = key(at);
    let id = RecordId::of(&tenant(path), &key);
    wire_key_of(id, &key, step).expect("the step's name is short")
}

/// A key of the history.
pub(crate) fn key(at: usize) -> Key {
    Key::new(["one", "two"][at.min(1)]).expect("a key is made of visible characters")
}
