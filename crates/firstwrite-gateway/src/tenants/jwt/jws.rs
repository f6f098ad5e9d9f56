//! A token taken apart (RFC 7515, compact form): its header checked, its signature not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::{Algorithm, Reason, object};

/// Tokens in use are far below; a longer one is an attempt to keep us busy.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Headers that carry a key or say where to fetch one (RFC 7515, sections 4.1.2 to 4.1.6).
const KEY_HEADERS: [&str; 4] = ["jku", "jwk", "x5u", "x5c"];

/// A token taken apart.
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    pub(super) token_type: Option<String>,
    pub(super) payload: Vec<u8>,
    /// Bytes that the signature covers.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, Reason> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Reason::TooLong);
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Reason::Malformed);
        };
        let signed = &token[..header.len() + 1 + payload.len()];
        let header = object(&decode(header)?)?;
        if KEY_HEADERS.iter().any(|name| header.contains_key(*name)) {
            return Err(Reason::KeyInToken);
        }
        // No extension is understood here, so none that must be can be there.
        if header.contains_key("crit") {
            return Err(Reason::CriticalExtension);
        }
        let algorithm = text(&header, "alg")?.and_then(|name| Algorithm::from_name(&name));
        Ok(Self {
            algorithm: algorithm.ok_or(Reason::Algorithm)?,
            key_id: text(&header, "kid")?,
            token_type: text(&header, "typ")?,
            payload: decode(payload)?,
            signed,
            signature: decode(signature)?,
        })
    }
}

fn text(header: &Map<String, Value>, name: &str) -> Result<Option<String>, Reason> {
    match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Reason::Malformed),
    }
}

/// Strictly: no padding, no spare bits, nothing between the letters. One token has one spelling.
fn decode(part: &[u8]) -> Result<Vec<u8>, Reason> {
    if part.is_empty() {
        return Err(Reason::Malformed);
    }
    URL_SAFE_NO_PAD.decode(part).map_err(|_spelling| Reason::Malformed)
}
