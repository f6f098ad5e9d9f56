//! What names tenants, as a store may remember it: after a change, callers are other tenants than before, and
//! keys that were used run again.

use std::collections::BTreeSet;

use ring::hmac;

use super::settings::{
    Anonymous, ApiKeySettings, AuthorizationSettings, Carrier, CertificateSettings, HeaderSettings,
    JwtSettings, Settings, SettingsError, SingleSettings, Source,
};

/// A source, as far as it decides how its callers are named, and which callers are its own. Tables of API keys and
/// keys of issuers are left out: they change without another name for anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    tenant: String,
    principal: String,
    /// Place of its credentials: a caller whose credential is read no more is another source's, or anonymous.
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// It decides whatever else there is: a request may hold several credentials.
    Always(String),
    /// Callers from elsewhere are refused where nothing else names them.
    BesideOthers(String),
}

/// Tells secrets apart, and is too short to find one by trying.
const TAG_BYTES: usize = 2;

/// Returns what the sources go by, in their order; issuers, which are asked together, at the place of the first.
pub(super) fn of(settings: &Settings) -> Result<Vec<Naming>, SettingsError> {
    let Settings { anonymous, sources } = settings;
    let mut all = Vec::new();
    let mut issuers = Vec::new();
    let mut place = 0;
    for source in sources {
        let naming = Naming::of(source)?;
        if matches!(source, Source::Jwt(_)) {
            place = if issuers.is_empty() { all.len() } else { place };
            issuers.push(naming);
        } else {
            all.push(naming);
        }
    }
    issuers.sort_unstable_by(|one, other| one.tenant.cmp(&other.tenant));
    all.splice(place..place, issuers);
    // Behind the last source there are anonymous callers only. Where they are let in or not names nobody else.
    if *anonymous == Anonymous::Never
        && let Some(last) = all.last_mut()
        && matches!(last.place, Some(Place::BesideOthers(_)))
    {
        last.place = None;
    }
    Ok(all)
}

impl Naming {
    /// Each setting is placed here: it names tenants, or has `_` because its change refuses callers or lets in those
    /// who were refused.
    fn of(source: &Source) -> Result<Self, SettingsError> {
        let (tenant, principal, place) = match source {
            Source::Single(SingleSettings {}) => ("single".to_owned(), String::new(), None),
            Source::Authorization(settings) => (authorization(settings)?, String::new(), None),
            Source::Jwt(JwtSettings {
                issuer,
                tenant,
                principal,
                namespace,
                audience: _,
                algorithms: _,
                jwks: _,
                leeway: _,
                types: _,
            }) => {
                let prefix = within(namespace.as_deref().unwrap_or_default());
                (format!("jwt of {issuer} by {tenant}{prefix}"), principal.clone(), None)
            }
            Source::ApiKeys(ApiKeySettings { accept, header, starts_with, keys: _, table: _ }) => {
                let place = keys_place(accept, header.as_deref(), starts_with);
                ("api-keys".to_owned(), String::new(), Some(Place::Always(place)))
            }
            Source::Header(HeaderSettings { tenant, principal, peers, namespace }) => {
                let name = tenant.to_ascii_lowercase();
                let peers: BTreeSet<&str> = peers.iter().map(String::as_str).collect();
                let peers = peers.into_iter().collect::<Vec<_>>().join(", ");
                let place = Place::BesideOthers(format!("header {name} from {peers}"));
                let principal = principal.as_deref().unwrap_or_default().to_ascii_lowercase();
                (format!("header {name}{}", within(namespace)), principal, Some(place))
            }
            Source::Certificate(CertificateSettings { tenant, principal, namespace }) => {
                let principal = principal.map(|name| format!("{name:?}")).unwrap_or_default();
                (format!("certificate by {tenant:?}{}", within(namespace)), principal, None)
            }
        };
        Ok(Self { tenant, principal, place })
    }

    pub(super) fn text(&self, with_principal: bool) -> String {
        let Self { tenant, principal, place: _ } = self;
        if with_principal && !principal.is_empty() {
            return format!("{tenant}, principal by {principal}");
        }
        tenant.clone()
    }

    pub(super) fn place(&self) -> Option<&str> {
        match self.place.as_ref()? {
            Place::Always(text) | Place::BesideOthers(text) => Some(text),
        }
    }
}

/// Returns the place of API keys. A credential that is none for its place or its beginning is left to other sources.
fn keys_place(accept: &[Carrier], header: Option<&str>, starts_with: &str) -> String {
    let takes = |carrier, name: &str| accept.contains(&carrier).then(|| name.to_owned());
    let header = header.map(|name| format!("header {}", name.to_ascii_lowercase()));
    let places = [takes(Carrier::Bearer, "bearer"), takes(Carrier::Basic, "basic"), header];
    let places = places.into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("api-keys in {places}, beginning with {starts_with:?}")
}

fn authorization(settings: &AuthorizationSettings) -> Result<String, SettingsError> {
    // What is not accepted is refused, and left to no other source.
    let AuthorizationSettings { secret, accept_changing: _ } = settings;
    let Some(secret) = secret else { return Ok("authorization".to_owned()) };
    let secret = secret.text("secret")?.trim_end();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, b"firstwrite: which secret names tenants");
    let tag = firstwrite_core::codec::hex::encode(&tag.as_ref()[..TAG_BYTES]);
    Ok(format!("authorization keyed by secret {tag}"))
}

fn within(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!(" within {namespace}") }
}

#[cfg(test)]
mod tests;
