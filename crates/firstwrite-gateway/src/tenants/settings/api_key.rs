//! An API key as settings name it: by its digest.

use std::fmt;
use std::str::FromStr;

use firstwrite_core::codec::hex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// An API key, by its digest, and whose it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// SHA-256 of the key, 64 hexadecimal digits.
    pub sha256: KeyDigest,
    /// Tenant that owns it.
    pub tenant: String,
    /// Principal of the tenant that owns it.
    pub principal: Option<String>,
}

/// SHA-256 of an API key. Its `Debug` does not show it.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

impl FromStr for KeyDigest {
    type Err = &'static str;

    /// Reports the expected form and never the given text, which may be the key itself.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "SHA-256 of the key is needed, 64 hexadecimal digits";
        let mut digest = [0; 32];
        if !hex::decode_into(text.as_bytes(), &mut digest) {
            return Err(EXPECTED);
        }
        Ok(Self(digest))
    }
}

impl TryFrom<String> for KeyDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        // The digest of "abc", as FIPS 180-2 has it.
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text.parse(), Ok(KeyDigest::of(b"abc")));
        assert_eq!(text.to_uppercase().parse(), Ok(KeyDigest::of(b"abc")));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g"), &"é".repeat(32)]
        {
            let error = wrong.parse::<KeyDigest>().unwrap_err();
            assert!(error.contains("64 hexadecimal digits"), "{wrong}");
        }
    }
}
