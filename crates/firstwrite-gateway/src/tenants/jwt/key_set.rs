//! An issuer's keys, from a JWK set (RFC 7517).

use serde_json::Value;

use super::key::{Key, Parsed};
use super::{Algorithm, object};

/// Far above what an issuer has while it changes keys.
const KEYS_MAX: usize = 64;
/// 64 of the longest RSA keys, with certificates beside them.
const TEXT_BYTES_MAX: usize = 512 * 1024;

/// An issuer's keys.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Key>);

impl KeySet {
    /// The keys that can be used with one of these algorithms. There must be one for each, or the
    /// settings promise what no token can have.
    pub(super) fn parse(text: &str, algorithms: &[Algorithm]) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("it is over {TEXT_BYTES_MAX} bytes"));
        }
        let Ok(set) = object(text.as_bytes()) else {
            return Err("it is not a JSON object without repeated names".to_owned());
        };
        let Some(Value::Array(jwks)) = set.get("keys") else {
            return Err("a JWK set is needed: an object with a list `keys`".to_owned());
        };
        if jwks.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let mut keys: Vec<Key> = Vec::new();
        for (index, jwk) in jwks.iter().enumerate() {
            let place = |problem: &str| format!("keys[{index}]: {problem}");
            let Value::Object(jwk) = jwk else { return Err(place("it is not an object")) };
            let key = match Key::parse(jwk).map_err(place)? {
                Parsed::Key(key) => key,
                Parsed::PassedOver => continue,
            };
            let fits_both =
                |other: &Key| Algorithm::ALL.into_iter().any(|it| other.fits(it) && key.fits(it));
            if keys.iter().any(|other| other.id == key.id && fits_both(other)) {
                return Err(place("another key has the same `kid`, or likewise none"));
            }
            keys.push(key);
        }
        if let Some(without) = algorithms.iter().find(|it| !keys.iter().any(|key| key.fits(**it))) {
            return Err(format!("no key in it can be used with {}", without.name()));
        }
        keys.retain(|key| algorithms.iter().any(|algorithm| key.fits(*algorithm)));
        Ok(Self(keys))
    }

    /// The key of this id that can be used with the algorithm; without an id, the only such key.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.fits(algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id)));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Some(key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
