//! Entry points for fuzzing (see `fuzz/`): each decodes foreign bytes and panics if a rule does not hold.

use firstwrite_core::BodyForm;

use crate::encoding::{
    decode_answers, decode_fingerprint, decode_outcome, encode_answers, encode_fingerprint,
    encode_outcome,
};
use crate::redis::fuzzing::redis_record;
use crate::sealed::fuzzing::envelope;

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("stored_outcome", stored_outcome),
    ("stored_answers", stored_answers),
    ("stored_fingerprint", stored_fingerprint),
    ("redis_record", redis_record),
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

/// The address of a store, of whatever kind. Reading it touches nothing.
fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    crate::redis::fuzzing::address(text);
    #[cfg(feature = "postgres")]
    crate::postgres::fuzzing::address(text);
    #[cfg(feature = "mysql")]
    drop(crate::mysql::Address::parse(text, crate::MysqlOptions::default()));
    #[cfg(feature = "dynamodb")]
    crate::dynamo::parse_address(text);
}
