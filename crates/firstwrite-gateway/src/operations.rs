//! Which operations are protected, and what the gateway does for each beyond its policy.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use firstwrite::{KeyRequirement, Operation, Policies, Policy, PolicyResolver};
use firstwrite_core::{OnLostAnswer, Record, Rejection};
use http::request::Parts;
use http::{HeaderName, Method};

use crate::age::AgeLimit;
use crate::forward::{ForwardedKey, IDEMPOTENCY_KEY};
use crate::head::{self, malformed};
use crate::path;
use crate::probe::Probe;

/// A table of operations, with what only a gateway does for them.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    policies: Policies,
    named: HashMap<String, OperationExtras>,
    others: OperationExtras,
    /// Methods of all operations that have a name.
    methods: Vec<Method>,
}

/// Settings of an operation beyond its policy.
#[derive(Clone, Debug, Default)]
pub struct OperationExtras {
    /// Maximum age of a request, by its own timestamp.
    pub age: Option<AgeLimit>,
    /// Probe to ask after an answer was lost.
    pub probe: Option<Arc<Probe>>,
    /// If true, a key belongs to one principal of a tenant, and not to all of them.
    pub bound_to_principal: bool,
}

impl Operations {
    /// Every POST is protected by `policy`, with `extras`.
    pub fn new(policy: Policy, extras: OperationExtras) -> Self {
        let policies = Policies::new().default_policy(policy);
        Self { policies, others: extras, ..Self::default() }
    }

    /// Only what is named is protected.
    pub fn only_named() -> Self {
        let policies = Policies::new().without_default();
        Self { policies, ..Self::default() }
    }

    /// Protects an operation.
    #[must_use]
    pub fn protected(
        mut self,
        method: Method,
        pattern: &str,
        policy: Policy,
        extras: OperationExtras,
    ) -> Self {
        self.named.insert(format!("{method} {pattern}"), extras);
        self.know(&method);
        self.policies = self.policies.operation(method, pattern, policy);
        self
    }

    /// Lets an operation pass through, for a reason.
    #[must_use]
    pub fn unprotected(mut self, method: Method, pattern: &str, reason: &str) -> Self {
        self.know(&method);
        self.policies = self.policies.unprotected(method, pattern, reason);
        self
    }

    fn know(&mut self, method: &Method) {
        if !self.methods.contains(method) {
            self.methods.push(method.clone());
        }
    }

    /// The table of policies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The same, with a header of answers kept besides those that are.
    pub(crate) fn keeping(&self, header: &HeaderName) -> Self {
        let keep = |_name: Option<&str>, policy: &mut Policy| {
            policy.kept_headers.add(header.clone());
        };
        Self { policies: self.policies.clone().adjusted(keep), ..self.clone() }
    }

    /// The same, with the probe of each operation stored in its records. `service` names the API: no other
    /// gateway's probe, and no later one that asks in another way, may say of such a record that nothing
    /// happened.
    pub(crate) fn asked_at(&self, service: &str) -> Self {
        let name_probe = |name: Option<&str>, policy: &mut Policy| {
            let extras = name.map_or(&self.others, |name| self.extras(name));
            if let (Some(probe), OnLostAnswer::Uncertain) = (&extras.probe, policy.on_lost_answer) {
                policy.on_lost_answer = OnLostAnswer::Ask(probe.id(service));
            }
        };
        Self { policies: self.policies.clone().adjusted(name_probe), ..self.clone() }
    }

    /// Returns the probe that may settle `record`: the one that it was reserved with.
    pub(crate) fn probe_of(&self, record: &Record) -> Option<&Arc<Probe>> {
        let OnLostAnswer::Ask(_) = record.on_lost_answer else { return None };
        let policy = self.policy(&record.operation)?;
        let extras = self.extras(&record.operation);
        extras.probe.as_ref().filter(|_| policy.on_lost_answer == record.on_lost_answer)
    }

    /// Returns whether keys are bound to principals: those of operations without a name, and those of each
    /// named one.
    pub fn bindings(&self) -> (bool, BTreeMap<String, bool>) {
        let named = self.named.iter();
        let named = named.map(|(name, extras)| (name.clone(), extras.bound_to_principal)).collect();
        (self.others.bound_to_principal, named)
    }

    /// The protected operations that have a name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Returns true if this names a configured operation, and is not taken from a request.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// Returns the settings of the operation with this name.
    pub(crate) fn extras(&self, name: &str) -> &OperationExtras {
        self.named.get(name).unwrap_or(&self.others)
    }

    /// Every header that says how old a request is.
    pub(crate) fn believed_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let limits =
            self.named.values().chain([&self.others]).filter_map(|extras| extras.age.as_ref());
        limits.flat_map(|limit| {
            std::iter::once(&limit.header).chain(limit.signed.as_ref().map(|signed| &signed.header))
        })
    }

    /// Refuses a method that is one of an operation's but for its case: it would pass unprotected here, and be that
    /// operation to a server that does not care.
    pub(crate) fn check_method(&self, method: &Method) -> Result<(), Rejection> {
        head::check_method(method, self.methods.iter().map(Method::as_str))
    }

    /// Refuses a path in which an escaped slash hides an operation: a server that decodes paths before it
    /// looks at their segments would find another one there, or none.
    pub(crate) fn check_path(&self, request: &Parts) -> Result<(), Rejection> {
        let (method, path) = (&request.method, request.uri.path());
        let Some(other) = path::with_slashes(path).filter(|_| !path::is_own(path)) else {
            return Ok(());
        };
        let (here, there) =
            (self.policies.of_route(method, path), self.policies.of_route(method, &other));
        if here.as_ref().map(Arc::as_ptr) == there.as_ref().map(Arc::as_ptr) {
            return Ok(());
        }
        Err(malformed("With its escaped slashes decoded, the path is of another operation."))
    }

    /// Returns true if a request is protected: it is for an operation, and has the key or must have it.
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
        let resends = |policy: &Arc<Policy>| policy.on_lost_answer == OnLostAnswer::Resend;
        if key == ForwardedKey::Nothing && self.policies.known().iter().any(resends) {
            return Err(
                "with forward_key = \"nothing\" the API cannot recognise what on_lost_answer = \"resend\" sends \
                        again, and would carry it out twice: set forward_key = \"derived\" or \"original\", or \
                        leave \"resend\" away",
            );
        }
        Ok(())
    }

    /// Returns true if any operation has a probe.
    pub(crate) fn has_probes(&self) -> bool {
        self.others.probe.is_some() || self.named.values().any(|extras| extras.probe.is_some())
    }

    /// Returns true if any operation binds its keys to principals.
    pub(crate) fn binds_keys(&self) -> bool {
        self.others.bound_to_principal
            || self.named.values().any(|extras| extras.bound_to_principal)
    }

    /// The policy under which records of this name are kept.
    pub(crate) fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        self.policies.named(name)
    }
}

impl PolicyResolver for Operations {
    fn operation(&self, request: &Parts) -> Option<Operation> {
        // Resolved once per request, by its first reader.
        let found = request.extensions.get::<Operation>().cloned();
        found.or_else(|| PolicyResolver::operation(&self.policies, request))
    }

    fn known(&self) -> Vec<Arc<Policy>> {
        self.policies.known()
    }
}
