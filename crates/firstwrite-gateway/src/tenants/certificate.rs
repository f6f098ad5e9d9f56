//! The client certificate that the connection's handshake verified: which of its names is whose.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::identity::Identity;
use super::reason::Reason;
use super::settings::{CertificateName, CertificateSettings};
use crate::Peer;

/// Tenants by the names in their certificates.
#[derive(Debug)]
pub(crate) struct Certificates {
    settings: CertificateSettings,
}

impl Certificates {
    pub(crate) fn new(settings: &CertificateSettings) -> Self {
        Self { settings: settings.clone() }
    }

    pub(crate) fn identify(&self, peer: Option<&Peer>) -> Result<Option<Identity>, Reason> {
        let Some(der) = peer.and_then(|peer| peer.certificate.as_deref()) else { return Ok(None) };
        let der = CertificateDer::from(der);
        let Ok(certificate) = EndEntityCert::try_from(&der) else {
            return Err(Reason::Certificate);
        };
        let tenant = name(&certificate, self.settings.tenant)?;
        let principal = match self.settings.principal {
            Some(kind) => Some(name(&certificate, kind)?),
            None => None,
        };
        Identity::named(&self.settings.namespace, &tenant, principal.as_deref()).map(Some)
    }
}

/// The one name of this kind. Of several, none could be preferred for a reason that the issuer of
/// the certificate knows of.
fn name(certificate: &EndEntityCert<'_>, kind: CertificateName) -> Result<String, Reason> {
    let mut names = match kind {
        CertificateName::CommonName => common_names(certificate.subject())?,
        CertificateName::Uri => certificate.valid_uri_names().map(str::to_owned).collect(),
        CertificateName::Dns => {
            certificate.valid_dns_names().map(str::to_ascii_lowercase).collect()
        }
    };
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(Reason::CertificateName),
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `UTF8String`, `PrintableString`, `IA5String`: those that are UTF-8 as they stand.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The common names of a subject: a list of sets of pairs (RFC 5280, section 4.1.2.4).
fn common_names(mut subject: &[u8]) -> Result<Vec<String>, Reason> {
    let mut names = Vec::new();
    while !subject.is_empty() {
        let set = Element::read(subject, SET)?;
        subject = set.rest;
        let mut pairs = set.content;
        while !pairs.is_empty() {
            let pair = Element::read(pairs, SEQUENCE)?;
            pairs = pair.rest;
            let Element { content: kind, rest: value } =
                Element::read(pair.content, OBJECT_IDENTIFIER)?;
            if kind != COMMON_NAME {
                continue;
            }
            let tag = *value.first().ok_or(Reason::Certificate)?;
            if !TEXTS.contains(&tag) {
                return Err(Reason::CertificateName);
            }
            let text = Element::read(value, tag)?.content;
            let text = str::from_utf8(text).map_err(|_not_text| Reason::CertificateName)?;
            names.push(text.to_owned());
        }
    }
    Ok(names)
}

/// The DER element at the front of some bytes, and what follows it.
struct Element<'a> {
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn read(input: &'a [u8], tag: u8) -> Result<Self, Reason> {
        let (length, rest) = match input {
            [first, ..] if *first != tag => return Err(Reason::Certificate),
            [_, length, rest @ ..] if *length < 0x80 => (usize::from(*length), rest),
            [_, 0x81, length, rest @ ..] => (usize::from(*length), rest),
            [_, 0x82, high, low, rest @ ..] => (usize::from(*high) << 8 | usize::from(*low), rest),
            _ => return Err(Reason::Certificate),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(Reason::Certificate)?;
        Ok(Self { content, rest })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common_name: Option<&str>, names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn identify(
        der: Vec<u8>,
        tenant: CertificateName,
        principal: Option<CertificateName>,
    ) -> Result<Option<Identity>, Reason> {
        let namespace = "tls:".to_owned();
        let source = Certificates::new(&CertificateSettings { tenant, principal, namespace });
        let peer = Peer::new(Ipv4Addr::LOCALHOST.into(), true, Some(der.into()));
        source.identify(Some(&peer))
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(Ia5String::try_from(text).unwrap())
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(Ia5String::try_from(text).unwrap())
    }

    #[test]
    fn a_name_is_read_where_the_settings_say() {
        use CertificateName::{CommonName, Dns, Uri};
        let names = || vec![uri("spiffe://acme/api"), dns("API.acme.example")];
        let check = |kind, expected: &str| {
            let found = identify(certificate(Some("Müller & Co"), names()), kind, None);
            assert_eq!(found.unwrap().unwrap().tenant.as_str(), expected);
        };
        check(CommonName, "tls:Müller & Co");
        check(Uri, "tls:spiffe://acme/api");
        check(Dns, "tls:api.acme.example");
        let both = identify(certificate(Some("alice"), names()), Uri, Some(CommonName));
        assert_eq!(both.unwrap().unwrap().principal.as_deref(), Some("alice"));
        let long = "x".repeat(200);
        let found = identify(certificate(Some(&long), vec![]), CommonName, None).unwrap();
        assert_eq!(found.unwrap().tenant.as_str(), format!("tls:{long}"));
    }

    #[test]
    fn none_or_several_names_are_refused() {
        use CertificateName::{CommonName, Dns, Uri};
        let check = |common_name, names, kind| {
            let found = identify(certificate(common_name, names), kind, None);
            assert_eq!(found, Err(Reason::CertificateName));
        };
        check(None, vec![], CommonName);
        check(Some("acme"), vec![], Uri);
        check(Some("acme"), vec![], Dns);
        check(Some("acme"), vec![uri("a:1"), uri("a:2")], Uri);
        check(Some("acme"), vec![dns("a.example"), dns("b.example")], Dns);
        let no_principal = identify(certificate(Some("acme"), vec![]), CommonName, Some(Uri));
        assert_eq!(no_principal, Err(Reason::CertificateName));
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let whole = certificate(Some("acme"), vec![]);
        for der in [vec![], b"acme".to_vec(), whole[..whole.len() - 1].to_vec()] {
            let found = identify(der, CertificateName::CommonName, None);
            assert_eq!(found, Err(Reason::Certificate));
        }
        let source = Certificates::new(&CertificateSettings {
            tenant: CertificateName::CommonName,
            principal: None,
            namespace: String::new(),
        });
        assert_eq!(source.identify(None), Ok(None));
    }

    #[test]
    fn a_subject_is_read_to_its_end() {
        let pair = |tag: u8, text: &[u8]| {
            let mut value = vec![0x06, 3, 0x55, 4, 3, tag, u8::try_from(text.len()).unwrap()];
            value.extend(text);
            let mut pair = vec![SEQUENCE, u8::try_from(value.len()).unwrap()];
            pair.extend(value);
            pair
        };
        let set = |pairs: &[Vec<u8>]| {
            let content = pairs.concat();
            let mut set = vec![SET, u8::try_from(content.len()).unwrap()];
            set.extend(content);
            set
        };
        let check = |subject: &[u8], expected: Result<&[&str], Reason>| {
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
            assert_eq!(common_names(subject), expected, "{subject:02x?}");
        };
        let one = set(&[pair(0x0c, b"a")]);
        check(&[], Ok(&[]));
        check(&one, Ok(&["a"]));
        check(&[one.clone(), set(&[pair(0x13, b"b")])].concat(), Ok(&["a", "b"]));
        check(&set(&[pair(0x16, b"a"), pair(0x0c, b"b")]), Ok(&["a", "b"]));
        // A BMPString, and text that is no text.
        check(&set(&[pair(0x1e, b"\0a")]), Err(Reason::CertificateName));
        check(&set(&[pair(0x0c, b"\xff")]), Err(Reason::CertificateName));
        for length in 1..one.len() {
            check(&one[..length], Err(Reason::Certificate));
        }
    }
}
