//! Envelopes, for [`crate::fuzzing`].

use bytes::Bytes;
use firstwrite_core::{Fence, HeaderPolicy, Outcome, RecordId, Tenant};
use http::{HeaderMap, StatusCode};

use super::envelope::{Bond, open, seal};
use super::key_ring::{KeyRing, SealingKey};

/// Checks that a sealed outcome opens to the same outcome, and does not open if anything is replaced.
pub(crate) fn envelope(bytes: &[u8]) {
    let (Ok(key), Ok(tenant)) = (SealingKey::new("k1", [7; 32]), Tenant::new("acme")) else {
        return;
    };
    let Ok(ring) = KeyRing::new(vec![key]) else { return };
    let bond = Bond { id: RecordId::from_bytes([7; 16]), fence: Fence::first(7), tenant: &tenant };
    let forged = Outcome::sealed(StatusCode::CREATED, Bytes::copy_from_slice(bytes));
    assert!(open(&ring, bond, &forged).is_err(), "what nobody sealed is opened");
    let headers = HeaderPolicy::default().keep(&HeaderMap::new());
    let plain = Outcome::new(StatusCode::CREATED, headers, Bytes::copy_from_slice(bytes));
    let sealed = seal(&ring, bond, &plain);
    let opened = sealed.ok().and_then(|sealed| open(&ring, bond, &sealed).ok());
    assert!(opened.is_some_and(|opened| opened == plain), "sealed and opened");
}
