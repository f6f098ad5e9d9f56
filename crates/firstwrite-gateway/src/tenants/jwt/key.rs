//! A key that verifies signatures, from one JWK (RFC 7517, RFC 7518, RFC 8037).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{self as verify, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};

use super::Algorithm;

/// A key that verifies signatures.
pub(super) struct Key {
    pub(super) id: Option<String>,
    /// The one algorithm that it may be used with, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

/// Key material. It decides which algorithms the key can be used with, so that a public key is never taken for
/// a secret.
enum Material {
    Secret(Vec<u8>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Result of parsing a JWK.
pub(super) enum Parsed {
    Key(Key),
    /// For another purpose, or of a kind that is not understood: RFC 7517 says to pass it over.
    PassedOver,
}

impl Key {
    pub(super) fn parse(jwk: &Map<String, Value>) -> Result<Parsed, &'static str> {
        let text = |name: &str| match jwk.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err("its members are texts"),
        };
        let is_for_others = text("use")?.is_some_and(|purpose| purpose != "sig")
            || jwk.get("key_ops").is_some_and(|purposes| !names_verifying(purposes));
        if is_for_others {
            return Ok(Parsed::PassedOver);
        }
        if jwk.contains_key("d") {
            return Err("it is a private key; only the public one belongs here");
        }
        let algorithm = match text("alg")? {
            None => None,
            Some(name) => match Algorithm::from_name(name) {
                None => return Ok(Parsed::PassedOver),
                found => found,
            },
        };
        let material = match (text("kty")?.ok_or("`kty` is missing")?, text("crv")?) {
            ("oct", _) => Material::Secret(bytes(text("k")?)?),
            ("RSA", _) => rsa(bytes(text("n")?)?, bytes(text("e")?)?)?,
            ("EC", Some("P-256")) => {
                Material::P256(point(bytes(text("x")?)?, bytes(text("y")?)?, 32)?)
            }
            ("EC", Some("P-384")) => {
                Material::P384(point(bytes(text("x")?)?, bytes(text("y")?)?, 48)?)
            }
            ("OKP", Some("Ed25519")) => {
                let x = bytes(text("x")?)?;
                if x.len() != 32 {
                    return Err("`x` has 32 bytes");
                }
                Material::Ed25519(x)
            }
            _ => return Ok(Parsed::PassedOver),
        };
        let key = Self { id: text("kid")?.map(str::to_owned), algorithm, material };
        if !Algorithm::ALL.into_iter().any(|algorithm| key.fits(algorithm)) {
            return Err(match key.material {
                Material::Secret(_) => "the secret is shorter than its algorithm's hash",
                Material::Rsa(_) | Material::P256(_) | Material::P384(_) | Material::Ed25519(_) => {
                    "`alg` and `kty` do not belong together"
                }
            });
        }
        Ok(Parsed::Key(key))
    }

    /// Returns true if the key may be used with an algorithm.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        if self.algorithm.is_some_and(|only| only != algorithm) {
            return false;
        }
        match algorithm {
            Algorithm::HS256 => self.has_secret_of(32),
            Algorithm::HS384 => self.has_secret_of(48),
            Algorithm::HS512 => self.has_secret_of(64),
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => matches!(self.material, Material::Rsa(_)),
            Algorithm::ES256 => matches!(self.material, Material::P256(_)),
            Algorithm::ES384 => matches!(self.material, Material::P384(_)),
            Algorithm::EdDsa => matches!(self.material, Material::Ed25519(_)),
        }
    }

    /// Returns true if the signature was made with this key and this algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let verified = match &self.material {
            Material::Secret(secret) => {
                let Some(hash) = hmac_of(algorithm) else { return false };
                hmac::verify(&hmac::Key::new(hash, secret), signed, signature)
            }
            Material::Rsa(key) => {
                let Some(parameters) = rsa_of(algorithm) else { return false };
                key.verify(parameters, signed, signature)
            }
            Material::P256(point) => {
                UnparsedPublicKey::new(&verify::ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, signature)
            }
            Material::P384(point) => {
                UnparsedPublicKey::new(&verify::ECDSA_P384_SHA384_FIXED, point)
                    .verify(signed, signature)
            }
            Material::Ed25519(point) => {
                UnparsedPublicKey::new(&verify::ED25519, point).verify(signed, signature)
            }
        };
        verified.is_ok()
    }

    /// A secret shorter than the hash is the weakest part (RFC 7518, section 3.2).
    fn has_secret_of(&self, bytes_min: usize) -> bool {
        matches!(&self.material, Material::Secret(secret) if secret.len() >= bytes_min)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.material {
            Material::Secret(_) => "oct",
            Material::Rsa(_) => "RSA",
            Material::P256(_) => "P-256",
            Material::P384(_) => "P-384",
            Material::Ed25519(_) => "Ed25519",
        };
        f.debug_struct("Key").field("id", &self.id).field("kind", &kind).finish_non_exhaustive()
    }
}

fn hmac_of(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        Algorithm::RS256
        | Algorithm::RS384
        | Algorithm::RS512
        | Algorithm::PS256
        | Algorithm::PS384
        | Algorithm::PS512
        | Algorithm::ES256
        | Algorithm::ES384
        | Algorithm::EdDsa => None,
    }
}

fn rsa_of(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&verify::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&verify::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&verify::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&verify::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&verify::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&verify::RSA_PSS_2048_8192_SHA512),
        Algorithm::HS256
        | Algorithm::HS384
        | Algorithm::HS512
        | Algorithm::ES256
        | Algorithm::ES384
        | Algorithm::EdDsa => None,
    }
}

fn rsa(mut n: Vec<u8>, mut e: Vec<u8>) -> Result<Material, &'static str> {
    for number in [&mut n, &mut e] {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        number.drain(..zeros);
    }
    let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
    if !(2048..=8192).contains(&bits) {
        return Err("an RSA key has 2048 to 8192 bits");
    }
    // What `ring` accepts: odd, at least 3, below 2^33.
    let exponent = e.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    if e.len() > 5 || !(3..1 << 33).contains(&exponent) || exponent.is_multiple_of(2) {
        return Err("the exponent `e` cannot be right");
    }
    Ok(Material::Rsa(RsaPublicKeyComponents { n, e }))
}

/// An uncompressed point (SEC 1, section 2.3.3). Whether it is on the curve is checked with it.
fn point(x: Vec<u8>, y: Vec<u8>, bytes_each: usize) -> Result<Vec<u8>, &'static str> {
    if x.len() != bytes_each || y.len() != bytes_each {
        return Err("`x` and `y` have the length that the curve has");
    }
    Ok([vec![0x04], x, y].concat())
}

fn bytes(text: Option<&str>) -> Result<Vec<u8>, &'static str> {
    let text = text.ok_or("a member that its `kty` needs is missing")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_spelling| "its numbers are base64url without padding")
}

fn names_verifying(purposes: &Value) -> bool {
    purposes.as_array().is_some_and(|them| them.iter().any(|purpose| purpose == "verify"))
}
