//! Signatures after the Standard Webhooks specification.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Deserializer};
use sha2::Sha256;

use crate::error::{ErrorKind, ProviderError};

/// Secret that signs webhooks: `whsec_` and base64. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// From its text, `whsec_` and base64.
    pub fn new(text: &str) -> Result<Self, ProviderError> {
        let refused = || {
            let detail = "webhooks.secret: whsec_ and the base64 of at least one byte";
            ProviderError::new(ErrorKind::Behaviour, detail)
        };
        let encoded = text.strip_prefix("whsec_").ok_or_else(refused)?;
        let key = BASE64.decode(encoded).map_err(|error| refused().with_source(error))?;
        if key.is_empty() { Err(refused()) } else { Ok(Self(key)) }
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("HMAC takes a key of any length")
            .chain_update(format!("{id}.{timestamp}."))
            .chain_update(body);
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The error must not repeat what was sent.
        Self::new(&String::deserialize(deserializer)?)
            .map_err(|_shown| serde::de::Error::custom("webhooks.secret: whsec_ and base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the specification's own libraries are tested with.
    #[test]
    fn it_signs_as_the_specification_says() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for bad in ["", "whsec_", "whsec_!", "c2VjcmV0"] {
            assert!(Secret::new(bad).is_err(), "{bad}");
        }
    }
}
