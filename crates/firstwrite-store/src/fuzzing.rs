//! Entry points for fuzzing (see `fuzz/`): each decodes foreign bytes and panics if a rule does not hold.

use bytes::Bytes;
use firstwrite_core::{BodyForm, Fence, HeaderPolicy, Outcome, RecordId, Tenant};
use http::{HeaderMap, StatusCode};

use crate::encoding::{
    decode_answers, decode_fingerprint, decode_outcome, encode_answers, encode_fingerprint,
    encode_outcome,
};
use crate::sealed::envelope::{Bond, open, seal};
use crate::{KeyRing, SealingKey};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("stored_outcome", stored_outcome),
    ("stored_answers", stored_answers),
    ("stored_fingerprint", stored_fingerprint),
    ("redis_record", crate::redis::decode_value),
    ("envelope", envelope),
    ("address", address),
];

/// An outcome as stores keep it: what can be read is written as it was understood.
fn stored_outcome(bytes: &[u8]) {
    if let Ok(outcome) = decode_outcome(bytes) {
        let again = decode_outcome(&encode_outcome(&outcome));
        assert!(again.is_ok_and(|again| again == outcome), "written and read again");
    }
}

fn stored_answers(bytes: &[u8]) {
    if let Ok(answers) = decode_answers(bytes) {
        let again = decode_answers(&encode_answers(&answers));
        assert!(again.is_ok_and(|again| again == answers), "written and read again");
    }
}

fn stored_fingerprint(bytes: &[u8]) {
    let Some((version, bytes)) = bytes.split_first() else { return };
    if let Ok(fingerprint) = decode_fingerprint(*version, BodyForm::Canonical, bytes) {
        assert_eq!(encode_fingerprint(&fingerprint), bytes, "written as it was");
    }
}

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

/// The address of a store, of whatever kind. Reading it touches nothing.
fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    crate::redis::parse_address(text);
    #[cfg(feature = "postgres")]
    crate::postgres::parse_address(text);
    #[cfg(feature = "mysql")]
    drop(crate::mysql::Address::parse(text, crate::MysqlOptions::default()));
    #[cfg(feature = "dynamodb")]
    crate::dynamo::parse_address(text);
}
