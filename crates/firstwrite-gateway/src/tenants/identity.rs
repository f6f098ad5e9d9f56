//! Identity of a caller, and the tenant names that no credential can claim.

use firstwrite_core::codec::hex;
use firstwrite_core::{Rejection, RejectionKind, Tenant};

use super::reason::Reason;

/// Identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Tenant that the caller's keys belong to.
    pub tenant: Tenant,
    /// Principal of the tenant, if the credential names one.
    pub principal: Option<String>,
}

/// The tenant of callers without a credential.
const ANONYMOUS: &str = "anonymous";
/// Tenant of all callers, where they are one. Its records outlive the setting, so no other source can claim it.
const SINGLE: &str = "single";
/// Prefix of the tenant names of credentials that the upstream verifies.
const DIGEST_PREFIX: &str = "auth-";
/// 96 bits: a second value with the same digest cannot be found, and a name stays readable.
const DIGEST_DIGITS: usize = 24;

impl Identity {
    /// Returns the tenant for keys bound to the principal, as [`Tenant::bound_to`] composes it. Refuses if the
    /// credential names no principal: unbound, the key would belong to all of the tenant's callers.
    pub fn bound(&self) -> Result<Tenant, Rejection> {
        match &self.principal {
            Some(principal) => Ok(self.tenant.bound_to(principal)),
            None => Err(Rejection::new(RejectionKind::TenantUnknown)),
        }
    }

    pub(crate) fn anonymous() -> Self {
        let tenant = Tenant::new(ANONYMOUS).expect("the name is a tenant's");
        Self { tenant, principal: None }
    }

    /// Returns true if nothing is known of the caller: others share its tenant.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.tenant.as_str() == ANONYMOUS
    }

    pub(crate) fn single() -> Self {
        let tenant = Tenant::new(SINGLE).expect("the name is a tenant's");
        Self { tenant, principal: None }
    }

    /// Identifies a caller by the digest of a credential that the upstream verifies. The credential is all that
    /// is known of its bearer, so it is the principal too.
    pub(crate) fn of_digest(digest: &[u8]) -> Self {
        let name = format!("{DIGEST_PREFIX}{}", hex::encode(&digest[..DIGEST_DIGITS / 2]));
        let tenant = Tenant::new(&name).expect("hexadecimal digits are a tenant's name");
        Self { tenant, principal: Some(name) }
    }

    /// By names that a verified credential holds.
    pub(crate) fn named(
        namespace: &str,
        name: &str,
        principal: Option<&str>,
    ) -> Result<Self, Reason> {
        // A principal is kept to what a tenant may be: it goes into the same logs and columns.
        if principal.is_some_and(|name| is_padded(name) || Tenant::new(name).is_err()) {
            return Err(Reason::NameInvalid);
        }
        let tenant = tenant(namespace, name)?;
        Ok(Self { tenant, principal: principal.map(str::to_owned) })
    }
}

/// Whose tenant a name is: see [`Tenant::owner`].
pub(crate) fn owner(tenant: &Tenant) -> Tenant {
    tenant.owner()
}

/// Returns true if the gateway did not verify the tenant: its name was made from what a caller showed, or from
/// nothing. A verified credential cannot claim such a name.
pub(crate) fn is_unverified(tenant: &Tenant) -> bool {
    matches!(tenant.as_str(), ANONYMOUS | SINGLE) || is_digest(tenant.as_str())
}

/// The tenant of this name, unless it is one of those that are made here.
pub(crate) fn tenant(namespace: &str, name: &str) -> Result<Tenant, Reason> {
    let full = format!("{namespace}{name}");
    if name.is_empty() || is_padded(name) || is_padded(&full) {
        return Err(Reason::NameInvalid);
    }
    let Ok(tenant) = Tenant::new(&full) else {
        return Err(Reason::NameInvalid);
    };
    if is_reserved(tenant.as_str()) { Err(Reason::NameReserved) } else { Ok(tenant) }
}

/// Returns true if a name begins or ends with white space, which parsers of HTTP take off a header's value: the API
/// would be told of another tenant.
fn is_padded(name: &str) -> bool {
    name.trim() != name
}

/// Returns true if a name is one of those that are made here: a credential that could claim one would read the
/// answers of others.
fn is_reserved(name: &str) -> bool {
    matches!(name, ANONYMOUS | SINGLE) || is_digest(name) || name.starts_with('/')
}

fn is_digest(name: &str) -> bool {
    name.strip_prefix(DIGEST_PREFIX).is_some_and(|digits| {
        digits.len() == DIGEST_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_made_here_cannot_be_claimed() {
        let digest = Identity::of_digest(&[0xab; 32]);
        assert_eq!(digest.tenant.as_str(), "auth-abababababababababababab");
        let made = [
            Identity::anonymous().tenant,
            Identity::single().tenant,
            digest.tenant.clone(),
            digest.tenant.bound_to("alice"),
            digest.tenant.bound_to(&"x".repeat(300)),
        ];
        for name in &made {
            assert_eq!(tenant("", name.as_str()), Err(Reason::NameReserved), "{name}");
            let (front, rear) = name.as_str().split_at(3);
            assert_eq!(tenant(front, rear), Err(Reason::NameReserved), "{name}");
        }
        for name in ["auth-service", "anonymous2", "singles", "a/b", "spiffe://acme/api", "auth-ab"]
        {
            assert_eq!(tenant("", name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_name_is_not_empty_and_no_longer_than_a_tenant() {
        assert_eq!(tenant("corp:", ""), Err(Reason::NameInvalid));
        assert_eq!(tenant("corp:", &"x".repeat(251)), Err(Reason::NameInvalid));
        assert_eq!(tenant("", "a\nb"), Err(Reason::NameInvalid));
        assert_eq!(Identity::named("", "acme", Some("a\nb")), Err(Reason::NameInvalid));
        assert_eq!(Identity::named("", "acme", Some("")), Err(Reason::NameInvalid));
        // HTTP takes it off a header's value, so that the API would see another tenant.
        for padded in [" acme", "acme ", " ", "acme\u{a0}", "\u{3000}acme"] {
            assert_eq!(tenant("corp:", padded), Err(Reason::NameInvalid), "{padded:?}");
            assert_eq!(Identity::named("", "acme", Some(padded)), Err(Reason::NameInvalid));
        }
        assert_eq!(tenant(" corp:", "acme"), Err(Reason::NameInvalid));
        assert_eq!(tenant("", "acme inc").unwrap().as_str(), "acme inc");
    }

    #[test]
    fn a_key_is_not_bound_to_nobody() {
        let nobody = Identity::anonymous().bound().unwrap_err();
        assert_eq!(nobody.kind(), RejectionKind::TenantUnknown);
        let alice = Identity::named("", "acme", Some("alice")).unwrap();
        assert_eq!(alice.bound().unwrap().as_str(), "/acme/alice");
    }
}
