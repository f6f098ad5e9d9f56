//! Tokens and keys, for [`crate::fuzzing`].

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::Value;

use super::Jwt;
use super::algorithm::Algorithm;
use super::issuer::Issuer;
use super::key_set::KeySet;
use crate::tenants::settings::{Document, JwtSettings};

/// The secret of the only issuer. Nothing but this file signs with it.
const SECRET: &[u8; 32] = b"thirty-two bytes of this target.";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const CLAIMS: &str = r#"{"iss":"https://id.example","aud":"api","exp":1800000600,"sub":"acme"}"#;
/// The time at which tokens are looked at: ten minutes before the claims above end.
const NOW: Duration = Duration::from_hours(500_000);

/// A token of a stranger: none is accepted but the genuine one, in its one spelling.
pub(crate) fn jws(bytes: &[u8]) {
    static GENUINE: OnceLock<String> = OnceLock::new();
    let genuine = GENUINE.get_or_init(|| sign(CLAIMS.as_bytes()));
    let Some(jwt) = issuers() else { return };
    assert!(
        jwt.verify(genuine.as_bytes(), SystemTime::UNIX_EPOCH + NOW).is_ok(),
        "the genuine one"
    );
    if jwt.verify(bytes, SystemTime::UNIX_EPOCH + NOW).is_ok() {
        assert_eq!(bytes, genuine.as_bytes(), "a forged token is accepted");
    }
}

/// Claims that the issuer signed, whatever they are: those that are accepted say each thing once, and mean us.
pub(crate) fn claims(bytes: &[u8]) {
    let Some(jwt) = issuers() else { return };
    let token = sign(bytes);
    if jwt.verify(token.as_bytes(), SystemTime::UNIX_EPOCH + NOW).is_err() {
        return;
    }
    let claims: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let seconds = |name: &str| claims.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN));
    assert_eq!(claims["iss"], "https://id.example", "another issuer's");
    let audience = &claims["aud"];
    let names_us = audience.as_array().is_some_and(|all| all.iter().any(|one| one == "api"));
    assert!(audience == "api" || names_us, "meant for others");
    assert!(seconds("exp").is_some_and(|end| end > NOW.as_secs_f64()), "it has ended");
    assert!(seconds("nbf").is_none_or(|start| start <= NOW.as_secs_f64()), "it has not begun");
    assert!(claims["sub"].is_string(), "it names no tenant");
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

fn issuers() -> Option<&'static Jwt> {
    static ISSUERS: OnceLock<Option<Jwt>> = OnceLock::new();
    let made = ISSUERS.get_or_init(|| {
        let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, encode(SECRET));
        let settings = JwtSettings {
            issuer: "https://id.example".to_owned(),
            audience: vec!["api".to_owned()],
            algorithms: vec![Algorithm::HS256],
            jwks: Document::Text(keys),
            tenant: "sub".to_owned(),
            principal: "sub".to_owned(),
            leeway: Duration::ZERO,
            types: vec!["JWT".to_owned()],
            namespace: None,
        };
        let issuer = Issuer::new(&settings).ok()?;
        Some(Jwt { issuers: vec![issuer], api_key_start: None })
    });
    made.as_ref()
}

fn sign(payload: &[u8]) -> String {
    let signed = format!("{}.{}", encode(HEADER.as_bytes()), encode(payload));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", encode(signature.as_ref()))
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
