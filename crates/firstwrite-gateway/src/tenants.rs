//! Whose request it is: taken from what the caller proves, before anything is looked up.
//!
//! 1. The sources are asked in the order in which they are set. The first whose credential is
//!    there decides.
//! 2. An invalid credential is a refusal. No later source is asked, so a caller gets no further
//!    with a broken token than with none.
//! 3. A credential that no source takes for its own is a refusal too: `Authorization`, and a header
//!    that a listed proxy sets.
//! 4. Without any credential, the caller is the anonymous tenant where the settings say so, and
//!    is refused elsewhere.
//!
//! A refusal is `tenant-unknown` (401). Why exactly goes to the log, in fixed words: no credential,
//! and nothing read from one, is ever logged, shown by `Debug`, or put into an error.
//!
//! Nothing here reads a file, the environment or a clock: settings, the text of files and the time
//! are handed in. Keys change by building a new [`Tenants`].
//!
//! ```
//! use firstwrite_gateway::tenants::{Settings, Tenants};
//! # use std::time::SystemTime;
//! # let clock = || SystemTime::UNIX_EPOCH;
//! let tenants = Tenants::new(&Settings::authorization(), clock)?;
//!
//! let (request, ()) = http::Request::builder()
//!     .header("authorization", "Bearer sk_test_1")
//!     .body(())?
//!     .into_parts();
//! let identity = tenants.identify(&request).map_err(|refusal| refusal.to_string())?;
//! assert!(identity.tenant.as_str().starts_with("auth-"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Once};
use std::time::SystemTime;

use firstwrite::{PolicyResolver, TenantResolver};
use firstwrite_core::{Rejection, RejectionKind, Tenant};
use http::HeaderName;
use http::request::Parts;

use crate::Peer;

mod api_keys;
mod authorization;
mod certificate;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod identity;
mod jwt;
mod naming;
mod network;
mod reason;
pub mod settings;
mod trusted_header;

use api_keys::ApiKeys;
use authorization::{Authorization, Digests, Scheme};
use certificate::Certificates;
pub use identity::Identity;
pub(crate) use identity::{is_unverified, owner};
use jwt::Jwt;
use naming::Naming;
pub use network::Network;
use reason::Reason;
use settings::{Anonymous, Source};
pub use settings::{Settings, SettingsError};
use trusted_header::TrustedHeader;

/// Says whose request it is.
pub struct Tenants {
    sources: Vec<Verifier>,
    anonymous: Anonymous,
    operations: Option<Arc<dyn PolicyResolver>>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    challenge: Option<&'static str>,
    naming: Vec<Naming>,
}

/// A source, ready to be asked.
#[derive(Debug)]
enum Verifier {
    Single,
    Authorization(Digests),
    Jwt(Jwt),
    ApiKeys(ApiKeys),
    Header(TrustedHeader),
    Certificate(Certificates),
}

/// Reason why there is no identity, and the credentials to ask for.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: Reason,
    challenge: Option<&'static str>,
}

/// Challenge after an invalid bearer token (RFC 6750).
const INVALID_TOKEN: &str = "Bearer error=\"invalid_token\"";

/// Explanation for a credential that may name another caller at the retry.
const CHANGING: &str = "This credential is not of a kind that is known to stay the same: it is renewed, signs each request, or \
     is of another scheme than Basic, ApiKey, Api-Key, X-API-Key, Key, Token and Bearer with an opaque token. So \
     it does not say that a retry is the same caller's, and nothing was run. Whoever runs the gateway can name callers \
     by a claim of the token (a source `jwt` under [gateway.tenants]), or set `accept_changing = true` for \
     the source `authorization`: then a retry with another credential runs again.";

static TOLD_CHANGING: Once = Once::new();

impl Tenants {
    /// Checks the settings and makes them ready. The clock is asked for the time of each request
    /// that carries a token.
    pub fn new(
        settings: &Settings,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Result<Self, SettingsError> {
        let sources = verifiers(settings)?;
        Ok(Self {
            challenge: challenge(&sources),
            naming: naming::of(settings)?,
            sources,
            anonymous: settings.anonymous.clone(),
            operations: None,
            clock: Box::new(clock),
        })
    }

    /// Sets how the operation of a request is found. Without it, no caller is anonymous by the name of an
    /// operation.
    #[must_use]
    pub fn operations_from(mut self, operations: impl PolicyResolver) -> Self {
        self.operations = Some(Arc::new(operations));
        self
    }

    /// Returns the identity of the sender, or the refusal to answer with.
    pub fn identify(&self, request: &Parts) -> Result<Identity, Rejection> {
        self.ask(request).map_err(Refusal::into_rejection)
    }

    /// Returns what names callers, in the order in which it is asked. With another list, callers are other tenants,
    /// to whom keys that they used are new. Without secrets, and without what changes nobody's name: keys of
    /// issuers, tables of API keys.
    pub fn naming(&self, with_principals: bool) -> Vec<String> {
        self.naming.iter().map(|naming| naming.text(with_principals)).collect()
    }

    /// Returns where the credentials of each source stand, as far as a caller may be another tenant when they are
    /// read elsewhere: the places and beginnings of API keys, and the addresses of proxies where a caller from
    /// another one is not refused.
    pub fn places(&self) -> Vec<String> {
        self.naming.iter().filter_map(Naming::place).map(str::to_owned).collect()
    }

    /// Returns true if some callers are verified here, so that others must not crowd them out.
    pub(crate) fn verifies(&self) -> bool {
        self.sources.iter().any(|source| match source {
            Verifier::Single | Verifier::Authorization(_) => false,
            Verifier::Jwt(_)
            | Verifier::ApiKeys(_)
            | Verifier::Header(_)
            | Verifier::Certificate(_) => true,
        })
    }

    /// Every header by which listed peers name a tenant or a principal.
    pub fn trusted_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers().flat_map(TrustedHeader::names)
    }

    /// Every header that a caller is identified by, `Authorization` aside.
    pub(crate) fn believed_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let of_keys = self.sources.iter().filter_map(|source| match source {
            Verifier::ApiKeys(keys) => keys.header(),
            Verifier::Single
            | Verifier::Authorization(_)
            | Verifier::Jwt(_)
            | Verifier::Header(_)
            | Verifier::Certificate(_) => None,
        });
        self.trusted_headers().chain(of_keys)
    }

    /// Returns the headers of [`trusted_headers`](Self::trusted_headers) that this peer may not set. Remove
    /// them before a request is passed on: the upstream may believe them.
    pub fn untrusted_headers<'a>(
        &'a self,
        peer: Option<&'a Peer>,
    ) -> impl Iterator<Item = &'a HeaderName> {
        self.headers().filter(move |header| !header.trusts(peer)).flat_map(TrustedHeader::names)
    }

    fn headers(&self) -> impl Iterator<Item = &TrustedHeader> {
        self.sources.iter().filter_map(|source| match source {
            Verifier::Header(header) => Some(header),
            Verifier::Single
            | Verifier::Authorization(_)
            | Verifier::Jwt(_)
            | Verifier::ApiKeys(_)
            | Verifier::Certificate(_) => None,
        })
    }

    fn ask(&self, request: &Parts) -> Result<Identity, Refusal> {
        let refuse = |reason| Refusal { reason, challenge: self.challenge };
        let authorization = Authorization::of(&request.headers).map_err(refuse)?;
        let peer = request.extensions.get::<Peer>();
        for source in &self.sources {
            let found = match source {
                Verifier::Single => Ok(Some(Identity::single())),
                Verifier::Certificate(certificates) => certificates.identify(peer),
                Verifier::Header(header) => header.identify(&request.headers, peer),
                Verifier::ApiKeys(keys) => keys.identify(&request.headers, authorization),
                Verifier::Jwt(jwt) => jwt.identify(authorization, &*self.clock),
                Verifier::Authorization(digests) => digests.identify(authorization),
            };
            match found {
                Ok(None) => {}
                Ok(Some(identity)) => return Ok(identity),
                Err(reason) => {
                    let is_bearer = authorization.is_some_and(|it| it.scheme == Scheme::Bearer)
                        && matches!(source, Verifier::Jwt(_) | Verifier::ApiKeys(_));
                    let challenge = if is_bearer { Some(INVALID_TOKEN) } else { self.challenge };
                    return Err(Refusal { reason, challenge });
                }
            }
        }
        // Callers whose credentials are read by nobody here would share one tenant, and its answers.
        let proxied = self.headers().filter(|header| header.trusts(peer));
        let is_unclaimed = authorization.is_some()
            || proxied.flat_map(TrustedHeader::names).any(|it| request.headers.contains_key(it));
        if is_unclaimed {
            return Err(refuse(Reason::Unclaimed));
        }
        if self.may_be_anonymous(request) {
            return Ok(Identity::anonymous());
        }
        Err(refuse(Reason::NoCredential))
    }

    fn may_be_anonymous(&self, request: &Parts) -> bool {
        match &self.anonymous {
            Anonymous::Never => false,
            Anonymous::Everywhere => true,
            Anonymous::Operations(names) => {
                let operation = self.operations.as_ref().and_then(|them| them.operation(request));
                operation.is_some_and(|operation| names.contains(&*operation.name))
            }
        }
    }
}

impl TenantResolver for Tenants {
    fn resolve(&self, request: &Parts) -> Result<Tenant, Rejection> {
        self.identify(request).map(|identity| identity.tenant)
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants")
            .field("sources", &self.sources)
            .field("anonymous", &self.anonymous)
            .finish_non_exhaustive()
    }
}

impl Refusal {
    /// The reason goes to the log, and the client is told what to send.
    fn into_rejection(self) -> Rejection {
        tracing::debug!(reason = self.reason.text(), "a caller could not be identified");
        let mut rejection = Rejection::new(RejectionKind::TenantUnknown);
        if self.reason == Reason::Changing {
            // Only the operator can help. Once: a line for each request would be a stranger's to fill.
            TOLD_CHANGING.call_once(|| tracing::warn!("{CHANGING}"));
            rejection = rejection.detail(CHANGING);
        }
        match self.challenge {
            Some(challenge) => rejection.challenge(challenge),
            None => rejection,
        }
    }
}

/// The sources in their order. Issuers are asked together, at the place of the first: which one a
/// token is from stands in the token.
fn verifiers(settings: &Settings) -> Result<Vec<Verifier>, SettingsError> {
    settings.check()?;
    let mut verifiers = Vec::new();
    for (index, source) in settings.sources.iter().enumerate() {
        let verifier = match source {
            Source::Single(_) => Ok(Verifier::Single),
            Source::Authorization(settings) => Digests::new(settings).map(Verifier::Authorization),
            Source::ApiKeys(settings) => ApiKeys::new(settings).map(Verifier::ApiKeys),
            Source::Header(settings) => TrustedHeader::new(settings).map(Verifier::Header),
            Source::Certificate(settings) => Ok(Verifier::Certificate(Certificates::new(settings))),
            Source::Jwt(_) if verifiers.iter().any(|it| matches!(it, Verifier::Jwt(_))) => continue,
            Source::Jwt(_) => {
                verifiers.push(Verifier::Jwt(Jwt::new(settings)?));
                continue;
            }
        };
        verifiers.push(verifier.map_err(|error| error.within(&format!("sources[{index}].")))?);
    }
    Ok(verifiers)
}

/// Returns the challenge for a caller without a credential. A proxy's header and a certificate have no scheme
/// to name there, and the scheme that an upstream wants in `Authorization` is not known here.
fn challenge(sources: &[Verifier]) -> Option<&'static str> {
    let schemes: BTreeSet<Scheme> = sources
        .iter()
        .flat_map(|source| match source {
            Verifier::Jwt(_) => vec![Scheme::Bearer],
            Verifier::ApiKeys(keys) => keys.schemes(),
            Verifier::Single
            | Verifier::Authorization(_)
            | Verifier::Header(_)
            | Verifier::Certificate(_) => vec![],
        })
        .collect();
    match schemes.first()? {
        Scheme::Bearer => Some("Bearer"),
        Scheme::Basic => Some("Basic realm=\"gateway\""),
        Scheme::Other => None,
    }
}

#[cfg(test)]
mod tests;
