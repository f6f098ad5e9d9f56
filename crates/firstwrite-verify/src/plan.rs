//! The user's options for a run.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;

use crate::catalogue::Check;
use crate::hook::Hook;
use crate::profile::Profile;
use crate::target::Reach;

/// A header: its name and its value.
pub type Header = (String, String);

/// The operation to check, the expectations, and the limits of the checks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The operation that is checked.
    pub url: String,
    /// Its method.
    pub method: Method,
    /// Headers of every request, usually credentials.
    pub headers: Vec<Header>,
    /// A body that the operation takes.
    pub body: Vec<u8>,
    /// The header that names an action.
    pub key_header: String,
    /// Expectations where conforming APIs differ.
    pub profile: Profile,
    /// True if requests without a key are accepted on purpose, whatever the profile says.
    pub keys_are_optional: bool,
    /// A JSON pointer to the value that makes the body another request.
    pub vary: Option<String>,
    /// Headers of a retry that must be those of the first answer, besides Content-Type and Location.
    pub same_headers: Vec<String>,
    /// Method of counting effects.
    pub effects: EffectsBy,
    /// Credentials of another tenant, in the place of headers of the same name.
    pub other_tenant: Tenants,
    /// Hint that makes a request slow, so that others can overlap with it.
    pub slow: Option<Hint>,
    /// Hint that makes a request fail with a 5xx.
    pub fault: Option<Hint>,
    /// Actions on the server that the user allows.
    pub hooks: Hooks,
    /// Time for which the server keeps keys, if it is short enough to wait for.
    pub retention: Option<Duration>,
    /// An OpenAPI document whose operations are looked at.
    pub operations: Option<Operations>,
    /// Bounds of the run.
    pub limits: Limits,
    /// Decides every choice of the run, except the names of keys.
    pub seed: u64,
    /// Hosts that may be sent requests: this machine only, or any.
    pub reach: Reach,
    /// Certificates that are believed besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// Only these checks, or groups of them (the word before the dash); all if empty.
    pub only: Vec<String>,
    /// Not these checks, or groups of them.
    pub skip: Vec<String>,
}

/// Method of counting effects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EffectsBy {
    /// By the ids in answers: a JSON pointer. Effects without an answer are not seen.
    Ids(String),
    /// By asking: the number, or the length of the list, at a JSON pointer of this URL's answer.
    Url {
        /// URL of the counter.
        url: String,
        /// JSON pointer to the number or the list.
        pointer: String,
        /// Headers of the request. If empty, and the host is the same, the plan's own headers are sent.
        headers: Vec<Header>,
    },
    /// By what arrives at this address, `{webhook}` in the body or in headers standing for its URL.
    Webhook(String),
}

/// Credentials of another tenant, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenants {
    /// The user did not say.
    Unknown,
    /// The API has but one: there is nothing to check.
    One,
    /// These headers make a request another tenant's.
    Other(Vec<Header>),
}

/// A way to make the server slow, or fail, on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A header, which must be no part of what the server compares.
    Header(Header),
    /// A query, without its question mark.
    Query(String),
}

/// Actions on the server that the user allows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Hooks {
    /// Ends the server at once, and starts it again.
    pub restart: Option<Hook>,
    /// Takes the key store away.
    pub store_down: Option<Hook>,
    /// Brings it back.
    pub store_up: Option<Hook>,
    /// Revokes the credentials of the plan's headers.
    pub revoke: Option<Hook>,
}

/// Which other operations are looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operations {
    /// OpenAPI 3 or Swagger 2, YAML or JSON.
    pub document: PathBuf,
    /// Prefix of every path, if the document has none.
    pub base_path: Option<String>,
    /// True if each operation is sent a request without a key and with an empty object as its body.
    pub are_asked: bool,
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Largest number of requests.
    pub requests: u32,
    /// Number of requests that race at once.
    pub racers: usize,
    /// Timeout for a response.
    pub answer: Duration,
    /// Time after which a busy key counts as blocked.
    pub settle: Duration,
    /// Number of timed requests on each side.
    pub timings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A complete run takes about three hundred.
            requests: 600,
            racers: 10,
            answer: Duration::from_secs(10),
            // Leases of half a minute are usual.
            settle: Duration::from_secs(45),
            // Enough to see a millisecond on a quiet machine, few enough to be polite.
            timings: 24,
        }
    }
}

impl Plan {
    /// Asks `url` with this method and body, and with defaults otherwise.
    pub fn new(url: impl Into<String>, method: Method, body: impl Into<Vec<u8>>) -> Self {
        Self {
            url: url.into(),
            method,
            headers: Vec::new(),
            body: body.into(),
            key_header: "Idempotency-Key".to_owned(),
            profile: Profile::default(),
            keys_are_optional: false,
            vary: None,
            same_headers: Vec::new(),
            effects: EffectsBy::Ids("/id".to_owned()),
            other_tenant: Tenants::Unknown,
            slow: None,
            fault: None,
            hooks: Hooks::default(),
            retention: None,
            operations: None,
            limits: Limits::default(),
            seed: fastrand::u64(..),
            reach: Reach::Loopback,
            ca_file: None,
            only: Vec::new(),
            skip: Vec::new(),
        }
    }

    pub(crate) fn requires_keys(&self) -> bool {
        self.profile.requires_keys() && !self.keys_are_optional
    }

    /// Returns true if the options select this check.
    pub(crate) fn wants(&self, check: &Check) -> bool {
        let names = |list: &[String]| list.iter().any(|name| check.is_called(name));
        (self.only.is_empty() || names(&self.only)) && !names(&self.skip)
    }
}

impl Operations {
    /// Looks at the operations of this document; asks none of them.
    pub fn new(document: PathBuf) -> Self {
        Self { document, base_path: None, are_asked: false }
    }
}
