//! Keys of intents: drawn, or derived from a secret and a name. Never from a request.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A key: 128 bits in 22 characters of base64url. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

/// An application's secret, from which keys are derived. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// A shorter secret would be easier to guess than a key.
const SECRET_BYTES_MIN: usize = 16;

impl Key {
    /// The bytes of a key.
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn from_random(bytes: [u8; Self::BYTES]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// A key that stands in an entry.
    pub(crate) fn from_kept(text: String) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(&text).ok()?;
        (bytes.len() == Self::BYTES).then_some(Self(text))
    }

    /// The key as it is sent, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Secret {
    /// A secret of at least 16 bytes, 32 random ones at best: who guesses it knows every key.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        let bytes = bytes.into();
        if bytes.len() < SECRET_BYTES_MIN { Err(SecretError) } else { Ok(Self(bytes)) }
    }

    /// The key of an intent: the first 128 bits of the HMAC-SHA-256 of its name. It is the same for every life of
    /// the name, so a name must be used once.
    pub fn derive(&self, intent: &str) -> Key {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(intent.as_bytes());
        let digest = mac.finalize().into_bytes();
        let first = digest.first_chunk().expect("a digest has 32 bytes");
        Key::from_random(*first)
    }
}

/// The secret is shorter than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretError;

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the secret from which keys are derived has less than {SECRET_BYTES_MIN} bytes")
    }
}

impl std::error::Error for SecretError {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
