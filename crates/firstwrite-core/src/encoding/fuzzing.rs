//! Stored forms, for [`crate::fuzzing`]: a form that can be read is written as it was understood.

use super::{
    decode_answers, decode_fingerprint, decode_outcome, encode_answers, encode_fingerprint,
    encode_outcome,
};
use crate::BodyForm;

pub(crate) fn stored_outcome(bytes: &[u8]) {
    if let Ok(outcome) = decode_outcome(bytes) {
        let again = decode_outcome(&encode_outcome(&outcome));
        assert!(again.is_ok_and(|again| again == outcome), "written and read again");
    }
}

pub(crate) fn stored_answers(bytes: &[u8]) {
    if let Ok(answers) = decode_answers(bytes) {
        let again = decode_answers(&encode_answers(&answers));
        assert!(again.is_ok_and(|again| again == answers), "written and read again");
    }
}

pub(crate) fn stored_fingerprint(bytes: &[u8]) {
    let Some((version, bytes)) = bytes.split_first() else { return };
    if let Ok(fingerprint) = decode_fingerprint(*version, BodyForm::Canonical, bytes) {
        assert_eq!(encode_fingerprint(&fingerprint), bytes, "written as it was");
    }
}
