//! What the user asked for.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;

use crate::catalogue::Check;
use crate::hook::Hook;
use crate::profile::Profile;
use crate::target::Reach;

/// A header: its name and its value.
pub type Header = (String, String);

/// What is going to be asked, of whom, and how far the checks may go.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The operation that is checked.
    pub url: String,
    /// Its method.
    pub method: Method,
    /// What every request carries: credentials, as a rule.
    pub headers: Vec<Header>,
    /// A body that the operation takes.
    pub body: Vec<u8>,
    /// The header that names an action.
    pub key_header: String,
    /// What is expected where APIs differ in good faith.
    pub profile: Profile,
    /// Whether requests without a key are taken on purpose, whatever the profile says.
    pub keys_are_optional: bool,
    /// A JSON pointer to the value that makes the body another request.
    pub vary: Option<String>,
    /// Headers of a retry that must be those of the first answer, besides Content-Type and Location.
    pub same_headers: Vec<String>,
    /// How effects are counted.
    pub effects: EffectsBy,
    /// Credentials of another tenant, in the place of headers of the same name.
    pub other_tenant: Tenants,
    /// What makes a request slow, so that others can meet it.
    pub slow: Option<Hint>,
    /// What makes a request fail with a 5xx.
    pub fault: Option<Hint>,
    /// What may be done to the server.
    pub hooks: Hooks,
    /// How long the server keeps keys, if that is short enough to wait for.
    pub retention: Option<Duration>,
    /// An OpenAPI document whose operations are looked at.
    pub operations: Option<Operations>,
    /// Bounds of the run.
    pub limits: Limits,
    /// Decides every choice of the run, except the names of keys.
    pub seed: u64,
    /// Whether hosts other than this machine may be asked.
    pub reach: Reach,
    /// Certificates that are believed besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// Only these checks, or groups of them (the word before the dash); all if empty.
    pub only: Vec<String>,
    /// Not these checks, or groups of them.
    pub skip: Vec<String>,
}

/// How effects are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EffectsBy {
    /// By the ids in answers: a JSON pointer. Effects without an answer are not seen.
    Ids(String),
    /// By asking: the number, or the length of the list, at a JSON pointer of this URL's answer.
    Url {
        /// What is asked.
        url: String,
        /// Where the number stands.
        pointer: String,
        /// What the request carries; if empty, and the host is the same, the plan's own headers.
        headers: Vec<Header>,
    },
    /// By what arrives at this address, `{webhook}` in the body or in headers standing for its URL.
    Webhook(String),
}

/// Whether there is another tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenants {
    /// Nobody said.
    Unknown,
    /// The API has but one: there is nothing to check.
    One,
    /// These headers make a request another tenant's.
    Other(Vec<Header>),
}

/// What makes the server slow, or fail, on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A header, which must be no part of what the server compares.
    Header(Header),
    /// A query, without its question mark.
    Query(String),
}

/// What may be done to the server.
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
    /// What stands before every path, if the document does not say it.
    pub base_path: Option<String>,
    /// Whether a request without a key, and with an empty object, is sent to each of them.
    pub are_asked: bool,
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many requests are sent at most.
    pub requests: u32,
    /// How many race at once.
    pub racers: usize,
    /// How long an answer is waited for.
    pub answer: Duration,
    /// How long a key may be busy before it counts as blocked.
    pub settle: Duration,
    /// How many requests are timed on each side.
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

    /// Whether this check is asked for.
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
