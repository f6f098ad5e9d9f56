//! Entry points for fuzzing (see `fuzz/`): each decodes foreign bytes and panics if a rule does not hold.

use bytes::Bytes;
use firstwrite_core::{Fence, HeaderPolicy, Outcome, RecordId, Tenant};
use http::{HeaderMap, StatusCode};

use crate::sealed::envelope::{Bond, open, seal};
use crate::{KeyRing, SealingKey};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[("envelope", envelope)];

/// Checks that a sealed outcome opens to the same outcome, and does not open if anything is replaced.
fn envelope(bytes: &[u8]) {
    let (Ok(key), Ok(tenant)) = (SealingKey::new("k1", [7; 32]), Tenant::new("acme")) else {
        return;
    };
    let Ok(ring) = KeyRing::new(vec![key]) else { return };
    let bond = Bond { id: RecordId::from_bytes([7; 16]), fence: Fence::first(7), tenant: &tenant };
    let forged = Outcome::sealed(StatusCode::CREATED, Bytes::copy_from_slice(bytes));
    assert!(open(&ring, bond, &forged).is_err(), "bytes that were never sealed are opened");
    let headers = HeaderPolicy::default().keep(&HeaderMap::new());
    let plain = Outcome::new(StatusCode::CREATED, headers, Bytes::copy_from_slice(bytes));
    let sealed = seal(&ring, bond, &plain);
    let opened = sealed.ok().and_then(|sealed| open(&ring, bond, &sealed).ok());
    assert!(opened.is_some_and(|opened| opened == plain), "sealed and opened");
}
