//! Tokens and keys, for [`crate::fuzzing`].

use super::algorithm::Algorithm;
use super::jws::Jws;
use super::key_set::KeySet;

/// A token, before anything about it is believed.
pub(crate) fn jws(bytes: &[u8]) {
    drop(Jws::parse(bytes));
}

/// A set of keys. With each algorithm alone: with all of them, nearly every set lacks one.
pub(crate) fn jwks(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for algorithm in Algorithm::ALL {
        if let Ok(keys) = KeySet::parse(text, &[algorithm]) {
            // What is read can be asked: no key of another kind, however it is called.
            if let Some(key) = keys.find(None, algorithm) {
                assert!(key.fits(algorithm), "a key that does not fit");
                assert!(
                    !key.verifies(algorithm, b"signed", b"not a signature"),
                    "it signs anything"
                );
            }
        }
    }
}
