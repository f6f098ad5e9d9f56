//! The `Authorization` header, and tenants named by its digest.

use std::fmt;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::hmac;
use sha2::{Digest as _, Sha256};

use super::identity::Identity;
use super::reason::Reason;
use super::settings::{AuthorizationSettings, SettingsError};

mod stable;

/// The one `Authorization` header of a request.
#[derive(Clone, Copy)]
pub(crate) struct Authorization<'a> {
    pub(crate) scheme: Scheme,
    /// Credential after the scheme.
    pub(crate) credential: &'a [u8],
    /// Whole value of the header.
    value: &'a [u8],
}

/// Authentication scheme of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scheme {
    /// RFC 6750.
    Bearer,
    /// RFC 7617.
    Basic,
    /// Anything else.
    Other,
}

/// Tenants named by the digest of a credential that the upstream verifies.
pub(crate) struct Digests {
    key: Option<hmac::Key>,
    accepts_changing: bool,
}

impl<'a> Authorization<'a> {
    /// The header, if there is one. Two of them are refused: the upstream may look at the other.
    pub(crate) fn of(headers: &'a HeaderMap) -> Result<Option<Self>, Reason> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Reason::SeveralValues);
        }
        let value = value.as_bytes();
        // A tab is no separator, but the next reader of the header may take it for one.
        let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t'));
        let (scheme, rest) = value.split_at(end.unwrap_or(value.len()));
        let scheme = if scheme.eq_ignore_ascii_case(b"bearer") {
            Scheme::Bearer
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            Scheme::Basic
        } else {
            Scheme::Other
        };
        let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
        Ok(Some(Self { scheme, credential: &rest[start..], value }))
    }

    /// Returns the one spelling of all values that mean the same: the case of a scheme does not count, nor the
    /// number of spaces behind it (RFC 9110, section 11.4). A value without a credential has no scheme, and
    /// counts as it is.
    fn canonical(&self) -> Vec<u8> {
        if self.credential.is_empty() {
            return self.value.to_vec();
        }
        let scheme = match self.scheme {
            Scheme::Bearer => b"Bearer".to_vec(),
            Scheme::Basic => b"Basic".to_vec(),
            Scheme::Other => {
                let end = self.value.iter().position(|byte| *byte == b' ').unwrap_or_default();
                self.value[..end].to_ascii_lowercase()
            }
        };
        [&scheme, self.credential].join(&b' ')
    }
}

impl Digests {
    /// A secret shorter than this could be found by trying.
    const SECRET_BYTES_MIN: usize = 32;

    pub(crate) fn new(settings: &AuthorizationSettings) -> Result<Self, SettingsError> {
        let accepts_changing = settings.accept_changing;
        let Some(secret) = &settings.secret else {
            return Ok(Self { key: None, accepts_changing });
        };
        let secret = secret.text("secret")?.trim_end();
        if secret.len() < Self::SECRET_BYTES_MIN {
            let problem = format!("a secret of at least {} bytes", Self::SECRET_BYTES_MIN);
            return Err(SettingsError::new("secret", problem));
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Ok(Self { key: Some(key), accepts_changing })
    }

    pub(crate) fn identify(
        &self,
        authorization: Option<Authorization<'_>>,
    ) -> Result<Option<Identity>, Reason> {
        let Some(authorization) = authorization else { return Ok(None) };
        // An empty credential proves nothing; those who send it would share a tenant unasked.
        let is_known = authorization.scheme != Scheme::Other;
        if authorization.value.trim_ascii().is_empty()
            || is_known && authorization.credential.is_empty()
            || authorization.credential.starts_with(b"\t")
        {
            return Err(Reason::Malformed);
        }
        if !self.accepts_changing && !stable::is_stable(authorization.value) {
            return Err(Reason::Changing);
        }
        let value = authorization.canonical();
        let identity = match &self.key {
            Some(key) => Identity::of_digest(hmac::sign(key, &value).as_ref()),
            None => Identity::of_digest(&Sha256::digest(&value)),
        };
        Ok(Some(identity))
    }
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digests")
            .field("is_keyed", &self.key.is_some())
            .field("accepts_changing", &self.accepts_changing)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::tenants::settings::Document;

    #[test]
    fn a_scheme_is_found_whatever_its_case() {
        let check = |value: &str, scheme: Scheme, credential: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            let found = Authorization::of(&headers).unwrap().unwrap();
            assert_eq!(
                (found.scheme, found.credential),
                (scheme, credential.as_bytes()),
                "{value}"
            );
        };
        check("Bearer abc", Scheme::Bearer, "abc");
        check("bEARER   abc", Scheme::Bearer, "abc");
        check("BASIC abc", Scheme::Basic, "abc");
        check("Bearer", Scheme::Bearer, "");
        check("Bearer\tabc", Scheme::Bearer, "\tabc");
        check("Bearerabc", Scheme::Other, "");
        check("Digest a=b", Scheme::Other, "a=b");
        check("", Scheme::Other, "");
    }

    #[test]
    fn two_headers_are_refused() {
        let mut headers = HeaderMap::new();
        assert!(Authorization::of(&headers).unwrap().is_none());
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        assert_eq!(Authorization::of(&headers).err(), Some(Reason::SeveralValues));
    }

    fn digest(secret: Option<&str>, value: &'static str) -> Result<String, Reason> {
        let secret = secret.map(|text| Document::Text(text.to_owned()));
        let digests =
            Digests::new(&AuthorizationSettings { secret, accept_changing: false }).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
        let authorization = Authorization::of(&headers).unwrap();
        Ok(digests.identify(authorization)?.unwrap().tenant.as_str().to_owned())
    }

    #[test]
    fn each_value_is_a_tenant_of_its_own() {
        // sha256("Bearer a"): part of the stored format, since records stand under the name.
        assert_eq!(digest(None, "Bearer a").unwrap(), "auth-122c4e371d393490e5789c41");
        assert_ne!(digest(None, "Bearer a"), digest(None, "Bearer b"));
        assert_ne!(digest(None, "Bearer a"), digest(None, "Basic a"));
        let one = digest(None, "Bearer a");
        for same in ["bearer a", "BEARER a", "Bearer   a"] {
            assert_eq!(digest(None, same), one, "{same:?}");
        }
        assert_eq!(digest(None, "Token A"), digest(None, "token  A"));
        assert_ne!(digest(None, "Token A"), digest(None, "Token a"));
        assert_ne!(digest(None, "sk_A"), digest(None, "sk_a"), "it has no scheme");
        for empty in ["", " ", "Bearer", "basic  ", "Bearer\ta", "Token \ta"] {
            assert_eq!(digest(None, empty), Err(Reason::Malformed), "{empty:?}");
        }
    }

    #[test]
    fn a_credential_that_changes_is_taken_only_where_that_was_said() {
        let value = HeaderValue::from_static("DPoP abc");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let found = |accept_changing| {
            let settings = AuthorizationSettings { secret: None, accept_changing };
            let authorization = Authorization::of(&headers).unwrap();
            Digests::new(&settings).unwrap().identify(authorization).map(|found| found.is_some())
        };
        assert_eq!((found(false), found(true)), (Err(Reason::Changing), Ok(true)));
    }

    #[test]
    fn with_a_secret_the_digest_cannot_be_tried_out_by_others() {
        let (one, other) = ("1".repeat(32), "2".repeat(32));
        let keyed = digest(Some(&one), "Bearer a");
        assert_eq!(keyed, digest(Some(&format!("{one}\n")), "Bearer a"));
        assert_ne!(keyed, digest(None, "Bearer a"));
        assert_ne!(keyed, digest(Some(&other), "Bearer a"));
        let secret = Some(Document::Text("short".to_owned()));
        let short = AuthorizationSettings { secret, accept_changing: false };
        assert!(Digests::new(&short).unwrap_err().to_string().contains("32 bytes"));
    }
}
