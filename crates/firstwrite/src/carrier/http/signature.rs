//! Signatures of messages, as Standard Webhooks 1.0 has them: made by the sender, checked by the receiver.
//!
//! `webhook-signature` holds, for each secret that is alive, `v1,` and the HMAC-SHA256 of
//! `<webhook-id>.<webhook-timestamp>.<body>` in base64. With two secrets a receiver can go over from one to
//! the other while nothing is refused.
//!
//! ```
//! use std::time::Duration;
//!
//! use firstwrite::Timestamp;
//! use firstwrite::carrier::http::{SigningSecret, verify};
//! use http::HeaderMap;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
//! let mut headers = HeaderMap::new();
//! headers.insert("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".parse()?);
//! headers.insert("webhook-timestamp", "1614265330".parse()?);
//! headers.insert(
//!     "webhook-signature",
//!     "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".parse()?,
//! );
//! let now = Timestamp::from_millis(1_614_265_331_000);
//! let body = br#"{"test": 2432232314}"#;
//! let verified = verify(&headers, body, &[secret], Duration::from_mins(5), now)?;
//! assert_eq!(verified.id, "msg_p5jXN8AQM9LWM0D4loKWxJek");
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstwrite_core::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;

pub(super) const ID: HeaderName = HeaderName::from_static("webhook-id");
pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";

/// Secret shared by sender and receiver: `whsec_` and 24 to 64 random bytes in base64.
#[derive(Clone)]
pub struct SigningSecret(Hmac<Sha256>);

/// Reason why a text is not a signing secret. The error never contains the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigningSecretError {
    /// It does not begin with `whsec_`.
    NoPrefix,
    /// The part after the prefix is not base64.
    NotBase64,
    /// It is shorter or longer than Standard Webhooks allows.
    Length,
}

/// A message whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Id of the message, the same in every delivery of it.
    pub id: String,
    /// Time at which this delivery was signed.
    pub signed_at: Timestamp,
}

/// Reason why a delivery cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// One of the three headers is missing, is there twice, or cannot be read.
    Malformed,
    /// It was signed too long ago, or in the future: a recording, or clocks that differ.
    OutsideTolerance,
    /// No signature is by one of the secrets.
    NoMatch,
}

impl SigningSecret {
    /// 192 bits: fewer could be found by trying.
    pub const BYTES_MIN: usize = 24;
    /// A block of SHA-256: more adds nothing.
    pub const BYTES_MAX: usize = 64;

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// The id under which the message of this wire key is signed.
///
/// Clients choose part of the key. A full stop in it could move the border between id, timestamp and body,
/// and so pass off a part of the key as a body; hence it is written as in a URL, and the percent sign with
/// it, so that two keys never become one.
pub(super) fn id(wire_key: &str) -> Cow<'_, str> {
    if wire_key.contains(['.', '%']) {
        Cow::Owned(wire_key.replace('%', "%25").replace('.', "%2E"))
    } else {
        Cow::Borrowed(wire_key)
    }
}

/// The value of `webhook-signature`.
pub(super) fn sign(secrets: &[SigningSecret], id: &str, timestamp: &str, body: &[u8]) -> String {
    let one = |secret: &SigningSecret| {
        let digest = secret.mac(id, timestamp, body).finalize().into_bytes();
        format!("{VERSION}{}", STANDARD.encode(digest))
    };
    secrets.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Checks a delivery at its receiver: that one of `secrets` signed it, at most `tolerance` before or after
/// `now`. `body` is the body as it arrived, byte for byte.
///
/// A delivery that is recorded and sent again within the tolerance still passes: receivers must remember the
/// ids they have seen.
pub fn verify(
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[SigningSecret],
    tolerance: Duration,
    now: Timestamp,
) -> Result<Verified, SignatureError> {
    let id = only(headers, &ID).filter(|id| !id.is_empty() && !id.contains('.'));
    let id = id.ok_or(SignatureError::Malformed)?;
    let timestamp = only(headers, &TIMESTAMP).ok_or(SignatureError::Malformed)?;
    let signatures = only(headers, &SIGNATURE).ok_or(SignatureError::Malformed)?;
    let signed_at = seconds(timestamp).ok_or(SignatureError::Malformed)?;
    if signed_at.since(now).max(now.since(signed_at)) > tolerance {
        return Err(SignatureError::OutsideTolerance);
    }
    // Other versions may stand beside ours.
    let ours = signatures.split(' ').filter_map(|signature| signature.strip_prefix(VERSION));
    for digest in ours.filter_map(|encoded| STANDARD.decode(encoded).ok()) {
        let is_by = |secret: &SigningSecret| {
            // In constant time: how much of it was right must not be told by how long it took.
            secret.mac(id, timestamp, body).verify_slice(&digest).is_ok()
        };
        if secrets.iter().any(is_by) {
            return Ok(Verified { id: id.to_owned(), signed_at });
        }
    }
    Err(SignatureError::NoMatch)
}

/// The header's value, if it is there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

fn seconds(text: &str) -> Option<Timestamp> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = if is_number { text.parse().ok()? } else { return None };
    seconds.checked_mul(1000).map(Timestamp::from_millis)
}

impl FromStr for SigningSecret {
    type Err = SigningSecretError;

    fn from_str(text: &str) -> Result<Self, SigningSecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SigningSecretError::NoPrefix)?;
        // The cause is not kept: it would tell a character of the secret.
        let Ok(bytes) = STANDARD.decode(encoded) else { return Err(SigningSecretError::NotBase64) };
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
            return Err(SigningSecretError::Length);
        }
        Ok(Self(Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length")))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

impl fmt::Display for SigningSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPrefix => "a signing secret begins with whsec_",
            Self::NotBase64 => "what follows whsec_ in a signing secret is base64 with its padding",
            Self::Length => "a signing secret has 24 to 64 bytes",
        })
    }
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "webhook-id, webhook-timestamp or webhook-signature cannot be read",
            Self::OutsideTolerance => "webhook-timestamp is too far from the receiver's clock",
            Self::NoMatch => "no signature in webhook-signature is by a known secret",
        })
    }
}

impl std::error::Error for SigningSecretError {}

impl std::error::Error for SignatureError {}

#[cfg(test)]
mod tests;
