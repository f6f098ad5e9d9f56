//! Which operations are protected, and what the gateway does for each beyond its policy.

use std::collections::HashMap;
use std::sync::Arc;

use firstwrite::{KeyRequirement, Operation, Policies, Policy, PolicyResolver};
use http::request::Parts;
use http::{HeaderName, Method};

use crate::age::AgeLimit;
use crate::forward::{ForwardedKey, IDEMPOTENCY_KEY};
use crate::probe::Probe;

/// A table of operations, with what only a gateway does for them.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    policies: Policies,
    named: HashMap<String, Care>,
    others: Care,
}

/// What the gateway does for an operation beyond its policy.
#[derive(Clone, Debug, Default)]
pub struct Care {
    /// How old a request may be, by its own word.
    pub age: Option<AgeLimit>,
    /// Who is asked when an answer was lost.
    pub probe: Option<Arc<Probe>>,
    /// Whether a key belongs to one principal of a tenant, and not to all of them.
    pub bound_to_principal: bool,
}

impl Operations {
    /// Every POST is protected by `policy`, with `care`.
    pub fn new(policy: Policy, care: Care) -> Self {
        let policies = Policies::new().default_policy(policy);
        Self { policies, named: HashMap::new(), others: care }
    }

    /// Only what is named is protected.
    pub fn only_named() -> Self {
        let policies = Policies::new().without_default();
        Self { policies, named: HashMap::new(), others: Care::default() }
    }

    /// Protects an operation.
    #[must_use]
    pub fn protected(mut self, method: Method, pattern: &str, policy: Policy, care: Care) -> Self {
        self.named.insert(format!("{method} {pattern}"), care);
        self.policies = self.policies.operation(method, pattern, policy);
        self
    }

    /// Lets an operation pass through, for a reason.
    #[must_use]
    pub fn unprotected(mut self, method: Method, pattern: &str, reason: &str) -> Self {
        self.policies = self.policies.unprotected(method, pattern, reason);
        self
    }

    /// The table of policies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The same, with a header of answers kept besides those that are.
    pub(crate) fn keeping(&self, header: &HeaderName) -> Self {
        let keep = |policy: &mut Policy| {
            policy.kept_headers.add(header.clone());
        };
        Self { policies: self.policies.clone().adjusted(keep), ..self.clone() }
    }

    /// The protected operations that have a name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Whether this is the name of one, and not what a client asked for.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// What is done for the operation of this name.
    pub(crate) fn care(&self, name: &str) -> &Care {
        self.named.get(name).unwrap_or(&self.others)
    }

    /// Every header that says how old a request is.
    pub(crate) fn believed_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let limits = self.named.values().chain([&self.others]).filter_map(|care| care.age.as_ref());
        limits.flat_map(|limit| {
            std::iter::once(&limit.header).chain(limit.signed.as_ref().map(|signed| &signed.header))
        })
    }

    /// Whether a request is protected: it is of an operation, and has the key or must have it.
    pub(crate) fn is_protected(operation: &Operation, request: &Parts) -> bool {
        match operation.policy.key {
            KeyRequirement::Required => true,
            KeyRequirement::Optional => request.headers.contains_key(IDEMPOTENCY_KEY),
        }
    }

    /// Refuses to forward another key than the one that probes ask about: they would find nothing, and a
    /// key whose request had its effect would become free.
    pub fn check_forwarded(&self, key: ForwardedKey) -> Result<(), &'static str> {
        if self.has_probes() && key != ForwardedKey::Derived {
            return Err(
                "a probe asks about the derived key, which the API never sees: set forward_key = \
                        \"derived\", or leave the probe away",
            );
        }
        Ok(())
    }

    /// Whether anybody can be asked about any operation.
    pub(crate) fn has_probes(&self) -> bool {
        self.others.probe.is_some() || self.named.values().any(|care| care.probe.is_some())
    }

    /// Whether any operation's keys are bound to principals.
    pub(crate) fn binds_keys(&self) -> bool {
        self.others.bound_to_principal || self.named.values().any(|care| care.bound_to_principal)
    }

    /// The policy under which records of this name are kept.
    pub(crate) fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        self.policies.named(name)
    }
}

impl PolicyResolver for Operations {
    fn operation(&self, request: &Parts) -> Option<Operation> {
        // Asked once for each request, by whoever comes first.
        let found = request.extensions.get::<Operation>().cloned();
        found.or_else(|| PolicyResolver::operation(&self.policies, request))
    }

    fn known(&self) -> Vec<Arc<Policy>> {
        self.policies.known()
    }
}
