//! API keys: a table of their digests.
//!
//! A key is known by its SHA-256 alone, and looked up by it: how long that takes says nothing of a
//! key. A digest without salt is right for keys that were drawn at random, and only for those.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use super::authorization::{Authorization, Scheme};
use super::identity::Identity;
use super::reason::Reason;
use super::settings::{ApiKeySettings, Carrier, KeyDigest, SettingsError};

/// Longer than any key in use; a longer text is something else.
const KEY_BYTES_MAX: usize = 512;
/// Number of keys that fit into memory easily: about 20 MB.
const KEYS_MAX: usize = 100_000;

/// The keys that are known, and where they may stand.
pub(crate) struct ApiKeys {
    keys: HashMap<KeyDigest, Identity>,
    schemes: Vec<Scheme>,
    header: Option<HeaderName>,
    starts_with: String,
}

impl ApiKeys {
    /// The header that keys may stand in, beside `Authorization`.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    pub(crate) fn new(settings: &ApiKeySettings) -> Result<Self, SettingsError> {
        let mut keys = HashMap::new();
        for (index, key) in settings.keys.iter().enumerate() {
            let place = format!("keys[{index}]");
            add(&mut keys, key.sha256, &key.tenant, key.principal.as_deref())
                .map_err(|problem| SettingsError::new(place, problem))?;
        }
        if let Some(table) = &settings.table {
            for (index, line) in table.text("table")?.lines().enumerate() {
                add_line(&mut keys, line).map_err(|problem| {
                    SettingsError::new(format!("table, line {}", index + 1), problem)
                })?;
            }
        }
        if keys.is_empty() {
            return Err(SettingsError::new("keys", "at least one key is needed"));
        }
        let header = match &settings.header {
            Some(name) => Some(super::trusted_header::name("header", name)?),
            None => None,
        };
        if settings.accept.is_empty() && header.is_none() {
            let problem = "name \"bearer\" or \"basic\", or give `header`: a key stands nowhere";
            return Err(SettingsError::new("accept", problem));
        }
        let scheme = |carrier: &Carrier| match carrier {
            Carrier::Bearer => Scheme::Bearer,
            Carrier::Basic => Scheme::Basic,
        };
        let schemes = settings.accept.iter().map(scheme).collect();
        Ok(Self { keys, schemes, header, starts_with: settings.starts_with.clone() })
    }

    /// Returns the schemes of `Authorization` that may carry a key.
    pub(crate) fn schemes(&self) -> Vec<Scheme> {
        self.schemes.clone()
    }

    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        authorization: Option<Authorization<'_>>,
    ) -> Result<Option<Identity>, Reason> {
        if let Some(key) = self.in_header(headers)? {
            return self.look_up(key).map(Some);
        }
        let Some(authorization) = authorization else { return Ok(None) };
        if !self.schemes.contains(&authorization.scheme) {
            return Ok(None);
        }
        if authorization.scheme != Scheme::Basic {
            return self.look_up_own(authorization.credential);
        }
        if authorization.credential.len() > KEY_BYTES_MAX * 2 {
            return Err(Reason::TooLong);
        }
        let Ok(pair) = STANDARD.decode(authorization.credential) else {
            return Err(Reason::Malformed);
        };
        let colon = pair.iter().position(|byte| *byte == b':').ok_or(Reason::Malformed)?;
        let found = self.look_up_own(&pair[..colon])?;
        // A password would be a part of the credential that is not verified.
        if found.is_some() && colon + 1 != pair.len() {
            return Err(Reason::Malformed);
        }
        Ok(found)
    }

    fn in_header<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a [u8]>, Reason> {
        let Some(name) = &self.header else { return Ok(None) };
        super::trusted_header::single(headers, name)
    }

    /// Leaves a credential alone that does not begin as ours do.
    fn look_up_own(&self, key: &[u8]) -> Result<Option<Identity>, Reason> {
        if key.starts_with(self.starts_with.as_bytes()) {
            self.look_up(key).map(Some)
        } else {
            Ok(None)
        }
    }

    fn look_up(&self, key: &[u8]) -> Result<Identity, Reason> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Reason::TooLong);
        }
        self.keys.get(&KeyDigest::of(key)).cloned().ok_or(Reason::KeyUnknown)
    }
}

/// Shows the number of keys and not the keys: the table is of no use in a log.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys")
            .field("key_count", &self.keys.len())
            .field("schemes", &self.schemes)
            .field("header", &self.header)
            .field("starts_with", &self.starts_with)
            .finish_non_exhaustive()
    }
}

fn add(
    keys: &mut HashMap<KeyDigest, Identity>,
    digest: KeyDigest,
    tenant: &str,
    principal: Option<&str>,
) -> Result<(), String> {
    // Taken for a key by mistake, it would let in every caller that sends an empty one.
    if digest == KeyDigest::of(b"") {
        return Err("this is the digest of an empty text".to_owned());
    }
    let identity =
        Identity::named("", tenant, principal).map_err(|reason| reason.text().to_owned())?;
    if keys.len() == KEYS_MAX {
        return Err(format!("there are more than {KEYS_MAX} keys"));
    }
    if keys.insert(digest, identity).is_some() {
        return Err("this key stands there twice".to_owned());
    }
    Ok(())
}

fn add_line(keys: &mut HashMap<KeyDigest, Identity>, line: &str) -> Result<(), String> {
    const EXPECTED: &str = "digest, tenant, and perhaps a principal are needed";
    if line.trim_start().starts_with('#') {
        return Ok(());
    }
    let mut words = line.split_whitespace();
    let Some(digest) = words.next() else { return Ok(()) };
    let (Some(tenant), principal, None) = (words.next(), words.next(), words.next()) else {
        return Err(EXPECTED.to_owned());
    };
    add(keys, digest.parse()?, tenant, principal)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    use super::*;
    use crate::tenants::settings::{ApiKey, Document};

    fn settings() -> ApiKeySettings {
        let key = |key: &str, tenant: &str, principal: Option<&str>| ApiKey {
            sha256: KeyDigest::of(key.as_bytes()),
            tenant: tenant.to_owned(),
            principal: principal.map(str::to_owned),
        };
        ApiKeySettings {
            keys: vec![key("sk_1", "acme", None), key("sk_2", "globex", Some("ci"))],
            table: None,
            accept: vec![Carrier::Bearer, Carrier::Basic],
            header: Some("X-Api-Key".to_owned()),
            starts_with: "sk_".to_owned(),
        }
    }

    fn check(keys: &ApiKeys, header: &'static str, value: &str, expected: Result<&str, Reason>) {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static(header);
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        let found = keys.identify(&headers, Authorization::of(&headers).unwrap());
        let found = found.map(|identity| {
            let Some(identity) = identity else { return "-".to_owned() };
            format!("{} {}", identity.tenant, identity.principal.as_deref().unwrap_or("-"))
        });
        assert_eq!(found.as_deref().map_err(|reason| *reason), expected, "{header}: {value}");
    }

    #[test]
    fn a_key_is_found_wherever_it_may_stand() {
        let keys = ApiKeys::new(&settings()).unwrap();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let long = format!("sk_{}", "x".repeat(KEY_BYTES_MAX));
        let cases = [
            ("authorization", "Bearer sk_1".to_owned(), Ok("acme -")),
            ("authorization", "bearer sk_2".to_owned(), Ok("globex ci")),
            ("authorization", basic("sk_1:"), Ok("acme -")),
            ("x-api-key", "sk_1".to_owned(), Ok("acme -")),
            // Ours by how they begin, and unknown: refused, not passed on to another source.
            ("authorization", "Bearer sk_3".to_owned(), Err(Reason::KeyUnknown)),
            ("authorization", "Bearer sk_1 ".to_owned(), Err(Reason::KeyUnknown)),
            ("authorization", "Bearer sk_1, Bearer sk_2".to_owned(), Err(Reason::KeyUnknown)),
            ("authorization", basic("sk_3:"), Err(Reason::KeyUnknown)),
            ("authorization", format!("Bearer {long}"), Err(Reason::TooLong)),
            ("authorization", basic(&"x".repeat(2000)), Err(Reason::TooLong)),
            // Whatever stands in the header of our own is ours.
            ("x-api-key", "other".to_owned(), Err(Reason::KeyUnknown)),
            ("x-api-key", String::new(), Err(Reason::KeyUnknown)),
            // A part of the credential that is not verified, or that cannot be read.
            ("authorization", basic("sk_1:password"), Err(Reason::Malformed)),
            ("authorization", basic("sk_1"), Err(Reason::Malformed)),
            ("authorization", "Basic !".to_owned(), Err(Reason::Malformed)),
            // Left to another source.
            ("authorization", "Bearer pk_1".to_owned(), Ok("-")),
            ("authorization", basic("alice:password"), Ok("-")),
            ("authorization", "Digest sk_1".to_owned(), Ok("-")),
            ("x-other", "sk_1".to_owned(), Ok("-")),
        ];
        for (header, value, expected) in cases {
            check(&keys, header, &value, expected);
        }
    }

    #[test]
    fn without_a_beginning_every_credential_of_the_scheme_is_ours() {
        let only_bearer = ApiKeySettings {
            accept: vec![Carrier::Bearer],
            starts_with: String::new(),
            header: None,
            ..settings()
        };
        let keys = ApiKeys::new(&only_bearer).unwrap();
        check(&keys, "authorization", "Bearer pk_1", Err(Reason::KeyUnknown));
        check(&keys, "authorization", "Bearer", Err(Reason::KeyUnknown));
        check(&keys, "authorization", &format!("Basic {}", STANDARD.encode("sk_1:")), Ok("-"));
        check(&keys, "x-api-key", "sk_1", Ok("-"));
    }

    #[test]
    fn two_headers_with_keys_are_refused() {
        let keys = ApiKeys::new(&settings()).unwrap();
        let mut headers = HeaderMap::new();
        headers.append("x-api-key", HeaderValue::from_static("sk_1"));
        headers.append("x-api-key", HeaderValue::from_static("sk_1"));
        assert_eq!(keys.identify(&headers, None), Err(Reason::SeveralValues));
        headers.clear();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer sk_1"));
        headers.insert("x-api-key", HeaderValue::from_static("sk_9"));
        let found = keys.identify(&headers, Authorization::of(&headers).unwrap());
        assert_eq!(found, Err(Reason::KeyUnknown), "the one in the other header does not help");
    }

    fn table(lines: &str) -> Result<ApiKeys, String> {
        let table = Some(Document::Text(lines.to_owned()));
        ApiKeys::new(&ApiKeySettings { keys: vec![], table, ..settings() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_has_one_key_per_line() {
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let keys = table(&format!("# ours\n\n  {digest}\tacme  ci\n")).unwrap();
        check(&keys, "x-api-key", "abc", Ok("acme ci"));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let cases = [
            ("sk_secret acme".to_owned(), "table, line 1: SHA-256 of the key is needed"),
            (format!("\n{digest}"), "table, line 2: digest, tenant"),
            (format!("{digest} a b c"), "table, line 1: digest, tenant"),
            (format!("{digest} a\n{digest} b"), "table, line 2: this key stands there twice"),
            (format!("{digest} anonymous"), "table, line 1: the name is reserved"),
            (format!("{empty} a"), "table, line 1: this is the digest of an empty text"),
            ("# nothing".to_owned(), "keys: at least one key is needed"),
        ];
        for (lines, expected) in cases {
            let problem = table(&lines).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
            assert!(!problem.contains("sk_secret") && !problem.contains(digest), "{problem}");
        }
    }

    #[test]
    fn a_key_must_be_able_to_stand_somewhere() {
        let nowhere = ApiKeySettings { accept: vec![], header: None, ..settings() };
        assert!(ApiKeys::new(&nowhere).unwrap_err().to_string().starts_with("accept: "));
        let bad = ApiKeySettings { header: Some("x api key".to_owned()), ..settings() };
        assert!(ApiKeys::new(&bad).unwrap_err().to_string().starts_with("header: "));
    }
}
