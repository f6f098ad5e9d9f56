//! Signed tokens (RFC 7519): whose they are, once everything about them holds.
//!
//! 1. A token is at most 8 KiB, in three parts, each in base64url without a spare bit.
//! 2. Header and claims are JSON objects in which no name stands twice.
//! 3. A header that carries a key, points to one, or asks for an extension is refused.
//! 4. `iss` chooses the issuer; its settings, not the token, say which algorithms and keys count.
//! 5. `kid` chooses among the issuer's keys. Without one, a single key must fit.
//! 6. The signature holds, and only then are the claims looked at.
//! 7. `aud`, `exp`, and `nbf` if it is there, hold and are of the right type.
//!
//! Signatures are verified by `ring`, which the gateway links for TLS anyway. The usual crate for
//! tokens reads the clock itself, leaves 1 to 3 to its caller, takes a list for an issuer, and
//! brings a second set of algorithms, among them an RSA with an open advisory (RUSTSEC-2023-0071).

use std::time::SystemTime;

use firstwrite::strict_json;
use serde_json::{Map, Value};

use super::authorization::{Authorization, Scheme};
use super::identity::Identity;
use super::reason::Reason;
use super::settings::{Carrier, Settings, SettingsError, Source};

mod algorithm;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod issuer;
mod jws;
mod key;
mod key_set;

pub use algorithm::Algorithm;
use issuer::Issuer;
use jws::Jws;

/// Issuers whose tokens are accepted.
#[derive(Debug)]
pub(crate) struct Jwt {
    issuers: Vec<Issuer>,
    /// Prefix of bearer credentials that are API keys.
    api_key_start: Option<String>,
}

impl Jwt {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let mut issuers: Vec<Issuer> = Vec::new();
        let mut api_key_start = None;
        for (index, source) in settings.sources.iter().enumerate() {
            match source {
                Source::Jwt(jwt) => {
                    let place = format!("sources[{index}].");
                    let issuer = Issuer::new(jwt).map_err(|error| error.within(&place))?;
                    if issuers.iter().any(|other| other.name() == issuer.name()) {
                        let problem = "another source has this issuer";
                        return Err(SettingsError::new("issuer", problem).within(&place));
                    }
                    issuers.push(issuer);
                }
                Source::ApiKeys(keys) if keys.accept.contains(&Carrier::Bearer) => {
                    api_key_start = Some(keys.starts_with.clone());
                }
                Source::ApiKeys(_)
                | Source::Single(_)
                | Source::Authorization(_)
                | Source::Header(_)
                | Source::Certificate(_) => {}
            }
        }
        Ok(Self { issuers, api_key_start })
    }

    /// Every bearer credential is a token, unless it begins as API keys do.
    pub(crate) fn identify(
        &self,
        authorization: Option<Authorization<'_>>,
        clock: &dyn Fn() -> SystemTime,
    ) -> Result<Option<Identity>, Reason> {
        let Some(authorization) = authorization.filter(|it| it.scheme == Scheme::Bearer) else {
            return Ok(None);
        };
        let token = authorization.credential;
        if self.api_key_start.as_ref().is_some_and(|start| token.starts_with(start.as_bytes())) {
            return Ok(None);
        }
        self.verify(token, clock()).map(Some)
    }

    fn verify(&self, token: &[u8], now: SystemTime) -> Result<Identity, Reason> {
        let jws = Jws::parse(token)?;
        let claims = object(&jws.payload)?;
        // Not verified yet: it chooses whose rules to hold the token against, and nothing else.
        let name = claims.get("iss").and_then(|issuer| issuer.as_str()).ok_or(Reason::Issuer)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.name() == name);
        issuer.ok_or(Reason::Issuer)?.verify(&jws, claims, now)
    }
}

#[cfg(test)]
pub(super) mod signer;
#[cfg(test)]
mod tests;
/// The object that these bytes are, without a name that stands twice.
fn object(bytes: &[u8]) -> Result<Map<String, Value>, Reason> {
    match strict_json::parse(bytes) {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(Reason::NotStrictJson),
    }
}

#[cfg(test)]
mod vectors;
