//! Settings under `[gateway.tenants]` in a settings file.
//!
//! Plain values: a [`Document`] names a file, and the program that reads files puts its text in the name's
//! place with [`Settings::read_files`].

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

pub use super::jwt::Algorithm;

mod api_key;
mod check;
mod choice;
mod document;
mod form;

pub use api_key::{ApiKey, KeyDigest};
pub use document::Document;

/// Identification of callers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Operations that let a caller in without any credential: `false`, `true`, or a list such as
    /// `["POST /sign-up"]`. Default: `false`.
    #[serde(default = "form::nowhere")]
    pub anonymous: Anonymous,
    /// Ways to identify a caller, asked in this order. At least one: there is no safe guess.
    #[serde(default)]
    pub sources: Vec<Source>,
}

/// Operations that let a caller in without any credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Nowhere.
    Never,
    /// Everywhere. All such callers are one tenant and share its keys.
    Everywhere,
    /// At the operations of these names, method and path pattern.
    Operations(BTreeSet<String>),
}

/// Way to identify a caller.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// Every request belongs to the same tenant.
    Single(SingleSettings),
    /// Each distinct `Authorization` value is a tenant; the upstream verifies it.
    Authorization(AuthorizationSettings),
    /// A signed token of one issuer.
    Jwt(JwtSettings),
    /// A key from a table.
    ApiKeys(ApiKeySettings),
    /// A header that a proxy in front sets.
    Header(HeaderSettings),
    /// The client certificate that the connection's handshake verified.
    Certificate(CertificateSettings),
}

/// Settings of the source `single`: there are none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleSettings {}

/// Settings of the source `authorization`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationSettings {
    /// Keys the digest, so that a tenant's name does not let anybody try passwords against it. At least 32
    /// bytes, the same for all gateways on one store; with another, all tenants are new.
    pub secret: Option<Document>,
    /// Takes credentials that are not known to stay the same too: tokens that are renewed (JWT), schemes that
    /// sign each request (`DPoP`, `Digest`, `SigV4`), and unknown ones. A retry with another value is another
    /// tenant's, and runs again. Default: `false`.
    #[serde(default)]
    pub accept_changing: bool,
}

/// Settings of a source `jwt`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtSettings {
    /// Value of `iss`, to the letter.
    pub issuer: String,
    /// Values of `aud`, one of which a token must name: one text or a list.
    #[serde(deserialize_with = "form::one_or_more")]
    pub audience: Vec<String>,
    /// Values of `alg` that are accepted. Nothing is taken from the token or guessed from the keys.
    pub algorithms: Vec<Algorithm>,
    /// Keys of the issuer: a JWK set.
    pub jwks: Document,
    /// Claim that names the tenant: a name, or a JSON pointer such as `/org/id`. Default: `"sub"`.
    #[serde(default = "form::subject")]
    pub tenant: String,
    /// Claim that names the principal, likewise. A token may do without it. Default: `"sub"`.
    #[serde(default = "form::subject")]
    pub principal: String,
    /// Greatest difference of clocks, at most five minutes. Default: `"30s"`.
    #[serde(default = "form::leeway", deserialize_with = "form::span")]
    pub leeway: Duration,
    /// Values of `typ` that are accepted, if a token has one. Default: `["JWT", "at+jwt"]`.
    #[serde(default = "form::token_types")]
    pub types: Vec<String>,
    /// Prefix of the tenant's name, such as `"corp:"`. Each of several issuers needs one: `sub` is unique
    /// at its issuer only.
    pub namespace: Option<String>,
}

/// Settings of the source `api-keys`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeySettings {
    /// Keys, by their digests.
    #[serde(default)]
    pub keys: Vec<ApiKey>,
    /// More keys, one per line: digest, tenant, and perhaps a principal; `#` begins a comment.
    pub table: Option<Document>,
    /// Schemes of `Authorization` that may hold a key. Default: `["bearer", "basic"]`.
    #[serde(default = "form::both_carriers")]
    pub accept: Vec<Carrier>,
    /// Header that may hold a key, such as `"x-api-key"`.
    pub header: Option<String>,
    /// Beginning of every key, such as `"sk_"`. A credential in `Authorization` that begins otherwise is
    /// left to other sources. Needed beside tokens, which come in the same header. Default: `""`.
    #[serde(default)]
    pub starts_with: String,
}

/// Schemes of `Authorization` that may carry an API key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// `Authorization: Bearer key`.
    Bearer,
    /// `Authorization: Basic`, the key as the user and no password, as clients of Stripe send it.
    Basic,
}

/// Settings of the source `header`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderSettings {
    /// Header that names the tenant, such as `"x-tenant"`.
    pub tenant: String,
    /// Header that names the principal.
    pub principal: Option<String>,
    /// Networks of the proxies that may set them, such as `"10.1.0.0/16"`, `"fd00::/8"` or `"10.1.2.3"`.
    pub peers: Vec<String>,
    /// Prefix of the tenant's name. Default: `""`.
    #[serde(default)]
    pub namespace: String,
}

/// Settings of the source `certificate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateSettings {
    /// Name in the certificate that is the tenant.
    pub tenant: CertificateName,
    /// Name in the certificate that is the principal.
    pub principal: Option<CertificateName>,
    /// Prefix of the tenant's name. Default: `""`.
    #[serde(default)]
    pub namespace: String,
}

/// A name in a certificate. There must be exactly one of its kind.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateName {
    /// The common name of the subject.
    CommonName,
    /// The alternative name that is a URI, as SPIFFE has it.
    Uri,
    /// The alternative name that is a host's, in small letters.
    Dns,
}

/// Settings that cannot be used: which one, and what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    setting: String,
    problem: String,
}

impl Settings {
    /// Creates settings with one source and without anonymous callers.
    pub fn of(source: Source) -> Self {
        Self { anonymous: Anonymous::Never, sources: vec![source] }
    }

    /// Every request is of one tenant.
    pub fn single() -> Self {
        Self::of(Source::Single(SingleSettings {}))
    }

    /// Each distinct `Authorization` value is a tenant.
    pub fn authorization() -> Self {
        Self::of(Source::Authorization(AuthorizationSettings::default()))
    }

    /// Returns true if all callers of the gateway are the same tenant.
    pub fn is_single(&self) -> bool {
        matches!(self.sources[..], [Source::Single(_)])
    }

    /// Puts the text of each file that is named in its name's place.
    ///
    /// ```
    /// # use firstwrite_gateway::tenants::Settings;
    /// # fn read(settings: &mut Settings) -> std::io::Result<()> {
    /// settings.read_files(|name| std::fs::read_to_string(name))
    /// # }
    /// ```
    pub fn read_files<E>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), E> {
        for source in &mut self.sources {
            let document = match source {
                Source::Authorization(settings) => settings.secret.as_mut(),
                Source::Jwt(settings) => Some(&mut settings.jwks),
                Source::ApiKeys(settings) => settings.table.as_mut(),
                Source::Single(_) | Source::Header(_) | Source::Certificate(_) => None,
            };
            if let Some(document) = document
                && let Document::File(name) = document
            {
                *document = Document::Text(read(name)?);
            }
        }
        Ok(())
    }

    /// Returns lines about callers who share keys and answers, or who count as another one than before, where the
    /// operator may not have meant it.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_single() {
            let note = "single: everybody who can reach this address is one customer, and gets the answers of \
                        all others under the same key";
            notes.push(note.to_owned());
        }
        let plain = check::without_namespace(&self.sources);
        if plain.len() > 1 {
            notes.push(format!(
                "{}: names without a namespace: equal ones are one customer, whichever source names them",
                plain.join(", ")
            ));
        }
        let accepts =
            |source: &Source| matches!(source, Source::Authorization(it) if it.accept_changing);
        if self.sources.iter().any(accepts) {
            let note = "accept_changing: a retry with a renewed or newly signed credential is another customer's, \
                        and runs again";
            notes.push(note.to_owned());
        }
        if self.anonymous == Anonymous::Everywhere {
            let note = "anonymous: all callers without credentials are one customer, and get each other's answers \
                        under the same key";
            notes.push(note.to_owned());
        }
        notes
    }

    /// Checks the rules that concern more than one source.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        check::order(&self.sources)?;
        check::single(self)?;
        check::bearers(&self.sources)?;
        check::namespaces(&self.sources)?;
        check::anonymous(&self.anonymous)
    }
}

impl SettingsError {
    pub(crate) fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into() }
    }

    /// The same, seen from further outside.
    pub(crate) fn within(self, place: &str) -> Self {
        Self { setting: format!("{place}{}", self.setting), problem: self.problem }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests;
