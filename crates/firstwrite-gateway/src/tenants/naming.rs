//! What names tenants, as a store may remember it: after a change, callers are other tenants than before, and
//! keys that were used run again.

use ring::hmac;

use super::settings::{AuthorizationSettings, Settings, SettingsError, Source};

/// A source, as far as it decides how its callers are named. Tables of API keys, keys of issuers and addresses of
/// proxies are left out: they change without another name for anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    tenant: String,
    principal: String,
}

/// Tells secrets apart, and is too short to find one by trying.
const TAG_BYTES: usize = 2;

/// Returns what the sources go by, in their order; issuers, which are asked together, at the place of the first.
pub(super) fn of(settings: &Settings) -> Result<Vec<Naming>, SettingsError> {
    let mut all = Vec::new();
    let mut issuers = Vec::new();
    let mut place = 0;
    for source in &settings.sources {
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
    Ok(all)
}

impl Naming {
    fn of(source: &Source) -> Result<Self, SettingsError> {
        let (tenant, principal) = match source {
            Source::Single(_) => ("single".to_owned(), String::new()),
            Source::Authorization(settings) => (authorization(settings)?, String::new()),
            Source::Jwt(jwt) => {
                let prefix = jwt.namespace.as_deref().unwrap_or_default();
                let tenant = format!("jwt of {} by {}{}", jwt.issuer, jwt.tenant, within(prefix));
                (tenant, jwt.principal.clone())
            }
            Source::ApiKeys(_) => ("api-keys".to_owned(), String::new()),
            Source::Header(header) => {
                let name = header.tenant.to_ascii_lowercase();
                let principal = header.principal.as_deref().unwrap_or_default();
                (
                    format!("header {name}{}", within(&header.namespace)),
                    principal.to_ascii_lowercase(),
                )
            }
            Source::Certificate(certificate) => {
                let prefix = within(&certificate.namespace);
                let principal = certificate.principal.map(|name| format!("{name:?}"));
                let tenant = format!("certificate by {:?}{prefix}", certificate.tenant);
                (tenant, principal.unwrap_or_default())
            }
        };
        Ok(Self { tenant, principal })
    }

    pub(super) fn text(&self, with_principal: bool) -> String {
        let Self { tenant, principal } = self;
        if with_principal && !principal.is_empty() {
            return format!("{tenant}, principal by {principal}");
        }
        tenant.clone()
    }
}

fn authorization(settings: &AuthorizationSettings) -> Result<String, SettingsError> {
    let Some(secret) = &settings.secret else { return Ok("authorization".to_owned()) };
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
mod tests {
    use super::super::Tenants;
    use super::super::settings::Settings;

    /// How a gateway with these sources names its callers.
    fn naming(sources: &str) -> Vec<String> {
        let settings: Settings = toml::from_str(sources).unwrap();
        let tenants = Tenants::new(&settings, || std::time::UNIX_EPOCH).unwrap();
        tenants.naming(true)
    }

    #[test]
    fn another_way_to_name_callers_is_another_text() {
        let secret = |text: &str| {
            let secret = text.repeat(32);
            format!("sources = [{{ kind = 'authorization', secret = {{ text = '{secret}' }} }}]")
        };
        let header = |more: &str| {
            format!(
                "sources = [{{ kind = 'header', tenant = 'X-Tenant', peers = ['10.0.0.1'] {more} }}]"
            )
        };
        let all = [
            naming("sources = [{ kind = 'single' }]"),
            naming("sources = [{ kind = 'authorization' }]"),
            naming(&secret("a")),
            naming(&secret("b")),
            naming(&header("")),
            naming(&header(", namespace = 'corp:'")),
            naming(&header(", principal = 'x-user'")),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{one:?}");
            assert!(!one[0].contains("aaa"), "{one:?}");
        }
        let moved = header("").replace("10.0.0.1", "10.0.0.2").replace("X-Tenant", "x-tenant");
        assert_eq!(naming(&moved), ["header x-tenant"]);
        let open = "sources = [{ kind = 'authorization', accept_changing = true }]";
        assert_eq!(naming(open), ["authorization"]);
    }
}
