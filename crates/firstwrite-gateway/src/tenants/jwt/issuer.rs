//! One issuer: which of its tokens hold, and whose they are.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::jws::Jws;
use super::key_set::KeySet;
use super::{Algorithm, Reason};
use crate::tenants::identity::Identity;
use crate::tenants::settings::{JwtSettings, SettingsError};

/// More than clocks differ by accident; with more, an ended token would live on.
const LEEWAY_MAX: Duration = Duration::from_mins(5);

/// An issuer whose tokens are accepted.
#[derive(Debug)]
pub(super) struct Issuer {
    name: String,
    audience: Vec<String>,
    algorithms: Vec<Algorithm>,
    keys: KeySet,
    tenant: Claim,
    principal: Claim,
    leeway: Duration,
    types: Vec<String>,
    namespace: String,
}

/// Place of a value in the claims.
#[derive(Debug)]
enum Claim {
    Name(String),
    Pointer(String),
}

impl Issuer {
    pub(super) fn new(settings: &JwtSettings) -> Result<Self, SettingsError> {
        let needed = [
            ("issuer", settings.issuer.is_empty()),
            (
                "audience",
                settings.audience.is_empty() || settings.audience.contains(&String::new()),
            ),
            ("algorithms", settings.algorithms.is_empty()),
            ("types", settings.types.is_empty()),
        ];
        if let Some((setting, _)) = needed.iter().find(|(_, is_missing)| *is_missing) {
            return Err(SettingsError::new(*setting, "must not be empty"));
        }
        if settings.leeway > LEEWAY_MAX {
            return Err(SettingsError::new("leeway", "at most five minutes"));
        }
        let keys = KeySet::parse(settings.jwks.text("jwks")?, &settings.algorithms)
            .map_err(|problem| SettingsError::new("jwks", problem))?;
        Ok(Self {
            name: settings.issuer.clone(),
            audience: settings.audience.clone(),
            algorithms: settings.algorithms.clone(),
            keys,
            tenant: Claim::parse("tenant", &settings.tenant)?,
            principal: Claim::parse("principal", &settings.principal)?,
            leeway: settings.leeway,
            types: settings.types.iter().map(|name| media_type(name)).collect(),
            namespace: settings.namespace.clone().unwrap_or_default(),
        })
    }

    /// Returns the `iss` of its tokens.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whose token it is, if all of it holds.
    pub(super) fn verify(
        &self,
        jws: &Jws<'_>,
        claims: Map<String, Value>,
        now: SystemTime,
    ) -> Result<Identity, Reason> {
        if !self.algorithms.contains(&jws.algorithm) {
            return Err(Reason::Algorithm);
        }
        if jws.token_type.as_ref().is_some_and(|name| !self.types.contains(&media_type(name))) {
            return Err(Reason::TokenType);
        }
        let key = self.keys.find(jws.key_id.as_deref(), jws.algorithm).ok_or(Reason::NoSuchKey)?;
        if !key.verifies(jws.algorithm, jws.signed, &jws.signature) {
            return Err(Reason::Signature);
        }
        self.check_audience(claims.get("aud"))?;
        self.check_times(&claims, now)?;
        let claims = Value::Object(claims);
        let tenant = self.tenant.find(&claims)?.ok_or(Reason::ClaimInvalid)?;
        Identity::named(&self.namespace, tenant, self.principal.find(&claims)?)
    }

    /// A text or a list of texts, one of which is ours.
    fn check_audience(&self, audience: Option<&Value>) -> Result<(), Reason> {
        let is_ours = |name: &str| self.audience.iter().any(|ours| ours == name);
        let found = match audience {
            Some(Value::String(name)) => is_ours(name),
            Some(Value::Array(names)) => {
                let names: Option<Vec<&str>> = names.iter().map(Value::as_str).collect();
                names.is_some_and(|names| names.into_iter().any(is_ours))
            }
            _ => false,
        };
        if found { Ok(()) } else { Err(Reason::Audience) }
    }

    fn check_times(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<(), Reason> {
        let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else {
            return Err(Reason::Clock);
        };
        let (now, leeway) = (now.as_secs_f64(), self.leeway.as_secs_f64());
        let expires_at = seconds(claims, "exp")?.ok_or(Reason::TimeInvalid)?;
        // Not relied upon, but an issuer that gets this wrong has the other claims right only by chance.
        seconds(claims, "iat")?;
        if now >= expires_at + leeway {
            return Err(Reason::Expired);
        }
        match seconds(claims, "nbf")? {
            Some(not_before) if now + leeway < not_before => Err(Reason::NotYet),
            _ => Ok(()),
        }
    }
}

impl Claim {
    fn parse(setting: &str, text: &str) -> Result<Self, SettingsError> {
        if text.is_empty() {
            return Err(SettingsError::new(setting, "the name of a claim is needed"));
        }
        Ok(if text.starts_with('/') {
            Self::Pointer(text.to_owned())
        } else {
            Self::Name(text.to_owned())
        })
    }

    /// The text there. A number is not a text: `1` and `1.0` would be two tenants, or one.
    fn find<'a>(&self, claims: &'a Value) -> Result<Option<&'a str>, Reason> {
        let found = match self {
            Self::Name(name) => claims.get(name),
            Self::Pointer(pointer) => claims.pointer(pointer),
        };
        match found {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Reason::ClaimInvalid),
        }
    }
}

/// A time in a claim: a number, not a text that looks like one.
fn seconds(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, Reason> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(seconds) if seconds >= 0.0 => Ok(Some(seconds)),
            _ => Err(Reason::TimeInvalid),
        },
        Some(_) => Err(Reason::TimeInvalid),
    }
}

/// A type by which to compare: case does not count, and `application/` may be left out
/// (RFC 7515, section 4.1.9).
fn media_type(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.strip_prefix("application/") {
        Some(rest) if !rest.contains('/') => rest.to_owned(),
        _ => name,
    }
}
