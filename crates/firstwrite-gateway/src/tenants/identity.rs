//! Who a caller is, and the names that nobody else can have.

use std::fmt::Write as _;

use firstwrite_core::{Rejection, RejectionKind, Tenant};
use sha2::{Digest as _, Sha256};

use super::reason::Reason;

/// Who a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose keys they are.
    pub tenant: Tenant,
    /// Who of the tenant it is, where the credential says so.
    pub principal: Option<String>,
}

/// The tenant of callers without a credential.
const ANONYMOUS: &str = "anonymous";
/// What the names of credentials that somebody else verifies begin with.
const DIGEST_PREFIX: &str = "auth-";
/// 96 bits: nobody finds a second value for a digest, and a name stays readable.
const DIGEST_DIGITS: usize = 24;

impl Identity {
    /// The tenant under which a key stands that is bound to the principal, as [`bound`] composes
    /// it. Refused where the credential names no principal: unbound, it would be everybody's.
    pub fn bound(&self) -> Result<Tenant, Rejection> {
        match &self.principal {
            Some(principal) => Ok(bound(&self.tenant, principal)),
            None => Err(Rejection::new(RejectionKind::TenantUnknown)),
        }
    }

    pub(crate) fn anonymous() -> Self {
        let tenant = Tenant::new(ANONYMOUS).expect("the name is a tenant's");
        Self { tenant, principal: None }
    }

    /// By the digest of a credential that somebody else verifies. The credential is all that is
    /// known of its bearer, so it is the principal too.
    pub(crate) fn of_digest(digest: &[u8]) -> Self {
        let name = format!("{DIGEST_PREFIX}{}", hex(&digest[..DIGEST_DIGITS / 2]));
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
        if principal.is_some_and(|principal| Tenant::new(principal).is_err()) {
            return Err(Reason::NameInvalid);
        }
        let tenant = tenant(namespace, name)?;
        Ok(Self { tenant, principal: principal.map(str::to_owned) })
    }
}

/// The tenant under which a key stands that is bound to a principal: `/tenant/principal`.
///
/// Two different pairs never meet, since `/` and `%` inside a part are escaped. The slash in front
/// keeps them from meeting a plain tenant: no credential can name one that begins with it. What
/// would be over 255 bytes is a digest of both parts.
pub fn bound(tenant: &Tenant, principal: &str) -> Tenant {
    let mut name = String::with_capacity(tenant.as_str().len() + principal.len() + 2);
    for part in [tenant.as_str(), principal] {
        name.push('/');
        push_escaped(&mut name, part);
    }
    Tenant::new(&name).unwrap_or_else(|_too_long| {
        let mut hash = Sha256::new();
        for part in [tenant.as_str(), principal] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        // One slash only: no escaped pair looks like it.
        let name = format!("/sha256-{}", hex(&hash.finalize()));
        Tenant::new(&name).expect("hexadecimal digits are a tenant's name")
    })
}

/// Whose tenant a name is: the tenant itself, or the one whose principal a key is [`bound`] to. What became
/// a digest stays what it is.
pub(crate) fn owner(tenant: &Tenant) -> Tenant {
    let pair = tenant.as_str().strip_prefix('/').and_then(|pair| pair.split_once('/'));
    let owner = pair.and_then(|(owner, _principal)| unescaped(owner));
    owner.and_then(|name| Tenant::new(&name).ok()).unwrap_or_else(|| tenant.clone())
}

/// The tenant of this name, unless it is one of those that are made here.
pub(crate) fn tenant(namespace: &str, name: &str) -> Result<Tenant, Reason> {
    if name.is_empty() {
        return Err(Reason::NameInvalid);
    }
    let Ok(tenant) = Tenant::new(&format!("{namespace}{name}")) else {
        return Err(Reason::NameInvalid);
    };
    if is_reserved(tenant.as_str()) { Err(Reason::NameReserved) } else { Ok(tenant) }
}

/// Whether a name is one of those that are made here: a credential that could claim one would read
/// the answers of others.
fn is_reserved(name: &str) -> bool {
    let is_digest = name.strip_prefix(DIGEST_PREFIX).is_some_and(|digits| {
        digits.len() == DIGEST_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    name == ANONYMOUS || is_digest || name.starts_with('/')
}

fn push_escaped(name: &mut String, part: &str) {
    for character in part.chars() {
        if matches!(character, '/' | '%') || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                write!(name, "%{byte:02X}").expect("writing to a string");
            }
        } else {
            name.push(character);
        }
    }
}

fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut pieces = part.split('%');
    bytes.extend_from_slice(pieces.next()?.as_bytes());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(name: &str, principal: &str) -> String {
        bound(&Tenant::new(name).unwrap(), principal).as_str().to_owned()
    }

    #[test]
    fn two_pairs_never_meet() {
        assert_eq!(bind("acme", "alice"), "/acme/alice");
        assert_eq!(bind("a/b", "c%2F\n"), "/a%2Fb/c%252F%0A");
        let long = "x".repeat(250);
        let parts = ["a", "b", "a/b", "a%2Fb", "%", "%25", "/", "é", "\u{85}", &long];
        let mut seen = std::collections::BTreeSet::new();
        for tenant in parts.iter().filter(|name| Tenant::new(name).is_ok()) {
            for principal in parts.iter().chain(&["", "sha256-", "\n", "%0A"]) {
                assert!(seen.insert(bind(tenant, principal)), "{tenant:?} {principal:?}");
            }
        }
    }

    #[test]
    fn whose_a_bound_name_is_can_be_told() {
        for name in ["acme", "a/b", "a%2Fb", "100%", "é/ü", "/"] {
            let plain = Tenant::new(name).unwrap();
            for principal in ["alice", "a/b", "%2F"] {
                assert_eq!(owner(&bound(&plain, principal)), plain, "{name} {principal}");
            }
        }
        for own in ["acme", "a/b", "/sha256-00", "/a%zz/b", "/a%F/b", "/%ff/b"] {
            let own = Tenant::new(own).unwrap();
            assert_eq!(owner(&own), own);
        }
    }

    #[test]
    fn what_is_too_long_is_a_digest_of_both_parts() {
        let long = "x".repeat(255);
        let names = [bind(&long, "a"), bind(&long, "b"), bind("a", &long), bind(&long, &long)];
        for (index, name) in names.iter().enumerate() {
            assert!(name.starts_with("/sha256-") && name.len() == 8 + 64, "{name}");
            assert!(!names[..index].contains(name));
        }
        // 253 bytes and two slashes are just short enough.
        assert_eq!(bind(&"x".repeat(252), "y").len(), 255);
        // Parts that would be the same text one after the other.
        assert_ne!(bind(&"x".repeat(254), &"x".repeat(3)), bind(&"x".repeat(253), &"x".repeat(4)));
    }

    #[test]
    fn names_that_are_made_here_cannot_be_claimed() {
        let digest = Identity::of_digest(&[0xab; 32]);
        assert_eq!(digest.tenant.as_str(), "auth-abababababababababababab");
        let made = [
            Identity::anonymous().tenant,
            digest.tenant.clone(),
            bound(&digest.tenant, "alice"),
            bound(&digest.tenant, &"x".repeat(300)),
        ];
        for name in &made {
            assert_eq!(tenant("", name.as_str()), Err(Reason::NameReserved), "{name}");
            let (front, rear) = name.as_str().split_at(3);
            assert_eq!(tenant(front, rear), Err(Reason::NameReserved), "{name}");
        }
        for name in ["auth-service", "anonymous2", "a/b", "spiffe://acme/api", "auth-ab"] {
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
    }

    #[test]
    fn a_key_is_not_bound_to_nobody() {
        let nobody = Identity::anonymous().bound().unwrap_err();
        assert_eq!(nobody.kind(), RejectionKind::TenantUnknown);
        let alice = Identity::named("", "acme", Some("alice")).unwrap();
        assert_eq!(alice.bound().unwrap().as_str(), "/acme/alice");
    }
}
