//! A header by which a proxy in front names the tenant. It is ignored from any other peer.

use http::{HeaderMap, HeaderName};

use super::identity::Identity;
use super::network::Network;
use super::reason::Reason;
use super::settings::{HeaderSettings, SettingsError};
use crate::{Peer, forward};

/// Headers that are believed if they come from listed peers.
#[derive(Debug)]
pub(crate) struct TrustedHeader {
    tenant: HeaderName,
    principal: Option<HeaderName>,
    peers: Vec<Network>,
    namespace: String,
}

/// Headers that mean something to every hop: naming a tenant by one would break or be broken.
const UNFIT: [&str; 10] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "idempotency-key",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl TrustedHeader {
    pub(crate) fn new(settings: &HeaderSettings) -> Result<Self, SettingsError> {
        let tenant = name("tenant", &settings.tenant)?;
        let principal = match &settings.principal {
            Some(principal) => Some(name("principal", principal)?),
            None => None,
        };
        if principal.as_ref() == Some(&tenant) {
            let problem = "the header that names the tenant cannot name the principal too";
            return Err(SettingsError::new("principal", problem));
        }
        if settings.peers.is_empty() {
            let problem = "name the networks of those who may set the header";
            return Err(SettingsError::new("peers", problem));
        }
        let mut peers = Vec::with_capacity(settings.peers.len());
        for (index, text) in settings.peers.iter().enumerate() {
            let network = Network::parse(text).map_err(|problem| {
                SettingsError::new(format!("peers[{index}]"), format!("{text:?}: {problem}"))
            })?;
            peers.push(network);
        }
        Ok(Self { tenant, principal, peers, namespace: settings.namespace.clone() })
    }

    /// The headers' names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        std::iter::once(&self.tenant).chain(&self.principal)
    }

    /// Returns true if this peer may set them. An unknown peer may not.
    pub(crate) fn trusts(&self, peer: Option<&Peer>) -> bool {
        peer.is_some_and(|peer| self.peers.iter().any(|network| network.contains(peer.address)))
    }

    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Option<Identity>, Reason> {
        if !self.trusts(peer) {
            return Ok(None);
        }
        let Some(tenant) = text(headers, &self.tenant)? else { return Ok(None) };
        let principal = match &self.principal {
            Some(name) => text(headers, name)?,
            None => None,
        };
        Identity::named(&self.namespace, tenant, principal).map(Some)
    }
}

/// The name of a header that may hold what identifies a caller.
pub(crate) fn name(setting: &str, text: &str) -> Result<HeaderName, SettingsError> {
    let Ok(name) = HeaderName::try_from(text) else {
        return Err(SettingsError::new(setting, "the name of a header such as x-tenant is needed"));
    };
    if UNFIT.contains(&name.as_str()) || forward::is_set_here(&name) {
        return Err(SettingsError::new(setting, format!("{name} has another meaning already")));
    }
    Ok(name)
}

/// The one value of a header.
pub(crate) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, Reason> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() { Err(Reason::SeveralValues) } else { Ok(Some(value.as_bytes())) }
}

/// The one value of a header, as text. A comma is refused: a proxy that adds its value to the
/// caller's instead of replacing it leaves one.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Reason> {
    let Some(value) = single(headers, name)? else { return Ok(None) };
    if value.contains(&b',') {
        return Err(Reason::SeveralValues);
    }
    str::from_utf8(value).map(Some).map_err(|_not_text| Reason::NameInvalid)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn settings() -> HeaderSettings {
        HeaderSettings {
            tenant: "X-Tenant".to_owned(),
            principal: Some("X-User".to_owned()),
            peers: vec!["10.1.0.0/16".to_owned(), "::1".to_owned()],
            namespace: String::new(),
        }
    }

    fn peer(address: &str) -> Peer {
        Peer::new(address.parse().unwrap(), false, None)
    }

    fn check(peer: Option<&Peer>, sent: &[(&str, &str)], expected: Result<Option<&str>, Reason>) {
        let header = TrustedHeader::new(&settings()).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let found = header.identify(&headers, peer).map(|identity| {
            identity.map(|it| format!("{} {}", it.tenant, it.principal.unwrap_or("-".to_owned())))
        });
        let found = found.as_ref().map(|it| it.as_deref()).map_err(|reason| *reason);
        assert_eq!(found, expected, "{peer:?} {sent:?}");
    }

    #[test]
    fn a_listed_peer_names_the_tenant_and_nobody_else_does() {
        let acme = [("x-tenant", "acme")];
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1"] {
            check(Some(&peer(address)), &acme, Ok(Some("acme -")));
            check(Some(&peer(address)), &[], Ok(None));
        }
        for address in ["10.2.0.1", "127.0.0.1", "::2", "::10.1.2.3"] {
            check(Some(&peer(address)), &acme, Ok(None));
        }
        check(None, &acme, Ok(None));
    }

    #[test]
    fn a_value_is_one_name() {
        let proxy = peer("10.1.2.3");
        let check = |sent: &[(&str, &str)], expected| check(Some(&proxy), sent, expected);
        check(&[("x-tenant", "acme"), ("x-user", "alice")], Ok(Some("acme alice")));
        check(&[("x-tenant", "müller")], Ok(Some("müller -")));
        check(&[("x-user", "alice")], Ok(None));
        check(&[("x-tenant", "")], Err(Reason::NameInvalid));
        check(&[("x-tenant", "acme"), ("x-user", "")], Err(Reason::NameInvalid));
        check(&[("x-tenant", "evil,acme")], Err(Reason::SeveralValues));
        check(&[("x-tenant", "evil"), ("x-tenant", "acme")], Err(Reason::SeveralValues));
        let twice = [("x-tenant", "acme"), ("x-user", "evil"), ("x-user", "alice")];
        check(&twice, Err(Reason::SeveralValues));
        check(&[("x-tenant", "anonymous")], Err(Reason::NameReserved));
        check(&[("x-tenant", &"x".repeat(256))], Err(Reason::NameInvalid));
    }

    #[test]
    fn settings_name_what_is_wrong() {
        let check = |change: fn(&mut HeaderSettings), expected: &str| {
            let mut settings = settings();
            change(&mut settings);
            let problem = TrustedHeader::new(&settings).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        };
        check(|it| it.tenant = "x tenant".to_owned(), "tenant: the name of a header");
        check(|it| it.tenant = "Authorization".to_owned(), "tenant: authorization has another");
        for ours in
            ["Firstwrite-Tenant", "firstwrite-any", "Idempotent-Replayed", "x-forwarded-for"]
        {
            let settings = HeaderSettings { tenant: ours.to_owned(), ..settings() };
            let problem = TrustedHeader::new(&settings).unwrap_err().to_string();
            assert!(problem.contains("has another meaning"), "{problem}");
        }
        let fine = HeaderSettings { tenant: "x-forwarded-user".to_owned(), ..settings() };
        assert!(TrustedHeader::new(&fine).is_ok());
        check(|it| it.principal = Some("x-tenant".to_owned()), "principal: ");
        check(|it| it.peers.clear(), "peers: ");
        check(|it| it.peers[1] = "0.0.0.0/0".to_owned(), "peers[1]: \"0.0.0.0/0\": this is every");
    }
}
