//! Keys that are bound to one principal of a tenant: the tenant name they are stored under, and their owner.
//!
//! `/tenant/principal`, with `/`, `%` and control characters inside a part escaped, so that two pairs
//! never meet. A part that is too long is a digest behind `%sha256-`, which no escaped text looks like.

use sha2::{Digest as _, Sha256};

use super::Tenant;
use crate::codec::{hex, percent};

/// Begins a digest in the place of a part.
const DIGEST_MARK: &str = "%sha256-";
const DIGEST_BYTES: usize = DIGEST_MARK.len() + 64;

/// With two slashes and a digest for the principal, it just fits.
const OWNER_BYTES_MAX: usize = Tenant::BYTES_MAX - 2 - DIGEST_BYTES;

impl Tenant {
    /// Returns the tenant under which a key that is bound to `principal` is stored.
    ///
    /// The slash in front keeps it from meeting a plain tenant, as long as no credential can name one
    /// that begins with it.
    #[must_use]
    pub fn bound_to(&self, principal: &str) -> Self {
        let owner = self.as_part();
        let plain = format!("/{owner}/{}", escaped(principal));
        Self::new(&plain).unwrap_or_else(|_too_long| {
            let digest = digest(&[self.as_str(), principal]);
            Self(format!("/{owner}/{digest}").into())
        })
    }

    /// Returns the owner of a name: the tenant itself, or the one whose principal a key is
    /// [bound to](Self::bound_to). Statements about a tenant cover all its principals, so code that looks
    /// something up by tenant compares owners.
    ///
    /// A tenant whose name is too long to fit in a bound one is known by its digest, whether or not a key is
    /// bound.
    #[must_use]
    pub fn owner(&self) -> Self {
        let pair = self.0.strip_prefix('/').and_then(|pair| pair.split_once('/'));
        match pair {
            Some((owner, _principal)) if is_digest(owner) => Self(format!("/{owner}").into()),
            Some((owner, _principal)) => {
                let owner = percent::decode(owner).and_then(|name| Self::new(&name).ok());
                owner.unwrap_or_else(|| self.clone())
            }
            // Escaping makes a byte three at most, so a short name needs no second look.
            None if self.0.len() <= OWNER_BYTES_MAX / 3 => self.clone(),
            None => {
                let part = self.as_part();
                if is_digest(&part) { Self(format!("/{part}").into()) } else { self.clone() }
            }
        }
    }

    /// The tenant as the first part of a bound name.
    fn as_part(&self) -> String {
        let part = escaped(&self.0);
        if part.len() <= OWNER_BYTES_MAX { part } else { digest(&[&self.0]) }
    }
}

/// A digest of texts, in which their borders count.
fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    format!("{DIGEST_MARK}{}", hex::encode(&hash.finalize()))
}

fn is_digest(part: &str) -> bool {
    part.len() == DIGEST_BYTES && part.starts_with(DIGEST_MARK)
}

fn escaped(part: &str) -> String {
    percent::encode_unless(part, |character| {
        !matches!(character, '/' | '%') && !character.is_control()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn bind(name: &str, principal: &str) -> String {
        tenant(name).bound_to(principal).as_str().to_owned()
    }

    #[test]
    fn two_pairs_never_meet() {
        assert_eq!(bind("acme", "alice"), "/acme/alice");
        assert_eq!(bind("a/b", "c%2F\n"), "/a%2Fb/c%252F%0A");
        let long = "x".repeat(250);
        // A caller that may choose a principal's name cannot choose the digest of another one.
        let digested = bind("a", &long.repeat(2)).split_off(3);
        let parts = ["a", "b", "a/b", "a%2Fb", "%", "%25", "/", "é", "\u{85}", &long, &digested];
        let mut seen = std::collections::BTreeSet::new();
        for tenant in parts.iter().filter(|name| Tenant::new(name).is_ok()) {
            for principal in parts.iter().chain(&["", "%sha256-", "\n", "%0A", &long.repeat(2)]) {
                assert!(seen.insert(bind(tenant, principal)), "{tenant:?} {principal:?}");
            }
        }
    }

    #[test]
    fn whose_a_bound_name_is_can_be_told_however_long_it_is() {
        let long =
            ["x".repeat(60), "/".repeat(60), "x".repeat(182), "x".repeat(255), "é".repeat(127)];
        let short = ["acme", "a/b", "a%2Fb", "100%", "é/ü", "sha256-00"].map(str::to_owned);
        let mut owners = std::collections::BTreeSet::new();
        for name in long.iter().chain(&short) {
            let plain = tenant(name);
            assert!(owners.insert(plain.owner()), "{name}");
            for principal in ["alice", "a/b", "%2F", &"y".repeat(300)] {
                let bound = plain.bound_to(principal);
                assert!(Tenant::new(bound.as_str()).is_ok(), "{bound}");
                assert_eq!(bound.owner(), plain.owner(), "{name} {principal}");
            }
        }
        for own in short.iter().map(String::as_str).chain(["/x", "/a%zz/b", "/a%F/b", "/%ff/b"]) {
            assert_eq!(tenant(own).owner(), tenant(own));
        }
        // The owner of an owner is the owner: asking twice gives the same.
        assert_eq!(tenant(&"x".repeat(255)).owner().owner(), tenant(&"x".repeat(255)).owner());
    }

    #[test]
    fn what_is_too_long_keeps_its_owner_and_is_a_digest_of_both_parts() {
        let (long, longer) = ("x".repeat(255), "y".repeat(300));
        let named = bind("acme", &longer);
        assert!(named.starts_with("/acme/%sha256-") && named.len() == 6 + DIGEST_BYTES, "{named}");
        let names = [named, bind("b", &longer), bind(&long, "a"), bind(&long, "b")];
        for (index, name) in names.iter().enumerate() {
            assert!(name.len() <= Tenant::BYTES_MAX, "{name}");
            assert!(!names[..index].contains(name));
        }
        // Parts that would be the same text one after the other.
        assert_ne!(bind(&"x".repeat(254), &"x".repeat(3)), bind(&"x".repeat(253), &"x".repeat(4)));
    }
}
