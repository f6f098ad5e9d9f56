//! Settings of a client, each with its default.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::lock::Mutex;
use http::HeaderName;

use super::Client;
use super::core::{Core, Random};
use super::locks::Locks;
use super::waits::Waits;
use crate::BoxError;
use crate::clock::{Clock, SystemClock};
use crate::credentials::Credentials;
use crate::entry::Spelling;
use crate::event::Event;
use crate::key::Secret;
use crate::origins::Origins;
use crate::rules::{Dialect, Limits};
use crate::seal::Seal;
use crate::storage::Storage;
use crate::transport::Transport;

/// When the status resource of a server is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusUse {
    /// Once an answer of the server showed that it has one.
    #[default]
    Auto,
    /// Until the server says that it has none.
    Always,
    /// Not at all.
    Never,
}

/// A client in the making. Each method sets one thing.
#[must_use = "nothing is there before `build`"]
pub struct Builder {
    core: Core,
}

/// Settings that are plain values.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) dialect: Dialect,
    pub(crate) status: StatusUse,
    pub(crate) wait_for: Duration,
    pub(crate) limits: Limits,
    pub(crate) attempt_timeout: Duration,
    pub(crate) body_bytes_max: usize,
    pub(crate) answer_bytes_max: usize,
    pub(crate) entries_max: usize,
    pub(crate) key_header: HeaderName,
}

impl Settings {
    /// The form in which keys of new intents are sent.
    pub(crate) fn spelling(&self) -> Spelling {
        Spelling { dialect: self.dialect, header: self.key_header.clone() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dialect: Dialect::Draft07,
            status: StatusUse::Auto,
            // As long as a person waits for a page.
            wait_for: Duration::from_secs(30),
            limits: Limits {
                // Whoever meant the action an hour ago has turned to something else.
                give_up_after: Duration::from_hours(1),
                // What most servers promise at least.
                retention: Duration::from_hours(24),
            },
            // Longer than a status resource holds its caller.
            attempt_timeout: Duration::from_secs(30),
            // What firstwrite's own gateway takes.
            body_bytes_max: 8 * 1024 * 1024,
            // Answers are kept until they are acknowledged, so they are shorter.
            answer_bytes_max: 1024 * 1024,
            // A folder of so many files is still listed at once.
            entries_max: 10_000,
            key_header: HeaderName::from_static("idempotency-key"),
        }
    }
}

impl Builder {
    pub(super) fn new(storage: Box<dyn Storage>, transport: Box<dyn Transport>) -> Self {
        let random: Random = Box::new(|bytes| getrandom::fill(bytes).map_err(BoxError::from));
        Self {
            core: Core {
                storage,
                transport,
                clock: Box::new(SystemClock::new()),
                random,
                credentials: None,
                seal: None,
                hooks: Vec::new(),
                secret: None,
                settings: Settings::default(),
                origins: Origins::default(),
                locks: Locks::default(),
                waits: Waits::default(),
                last_place: Mutex::new(None),
            },
        }
    }

    /// The client.
    pub fn build(self) -> Client {
        Client { core: Arc::new(self.core) }
    }

    /// The words in which the servers speak of keys. Default: [`Dialect::Draft07`]. An intent keeps those of its first
    /// attempt.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.core.settings.dialect = dialect;
        self
    }

    /// When the status resource is asked. Default: [`StatusUse::Auto`].
    pub fn status(mut self, status: StatusUse) -> Self {
        self.core.settings.status = status;
        self
    }

    /// The time for which [`Intent::send`](crate::Intent::send) blocks. Default: 30 s.
    pub fn wait_for(mut self, time: Duration) -> Self {
        self.core.settings.wait_for = time;
        self
    }

    /// The time from the first attempt, or from a resumption, after which an intent is given up. Default: 1 h.
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.core.settings.limits.give_up_after = time;
        self
    }

    /// The time from the first attempt for which servers keep a key, where they do not say so. Nothing is sent in its
    /// last minute or later. Default: 24 h.
    pub fn retention(mut self, time: Duration) -> Self {
        self.core.settings.limits.retention = time;
        self
    }

    /// The time that one attempt may take; after it the answer counts as lost. Default: 30 s.
    pub fn attempt_timeout(mut self, time: Duration) -> Self {
        self.core.settings.attempt_timeout = time;
        self
    }

    /// Largest body of a request. Default: 8 MiB.
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.core.settings.body_bytes_max = bytes;
        self
    }

    /// Largest body of an answer that is read and kept; of a larger one the status and the headers are. Default:
    /// 1 MiB.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.core.settings.answer_bytes_max = bytes;
        self
    }

    /// Number of entries that may stand. Default: 10 000.
    pub fn entries_max(mut self, count: usize) -> Self {
        self.core.settings.entries_max = count;
        self
    }

    /// The header of the key, for servers that call it otherwise. Default: `Idempotency-Key`. An intent keeps that of
    /// its first attempt.
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.core.settings.key_header = name;
        self
    }

    /// Derives keys from a secret and the intent's name instead of drawing them, for servers without storage: whoever
    /// opens the name again has the same key. A name must then be used once.
    pub fn derive_keys(mut self, secret: Secret) -> Self {
        self.core.secret = Some(secret);
        self
    }

    /// The source of each attempt's credentials. Default: there are none.
    pub fn credentials(mut self, credentials: impl Credentials) -> Self {
        self.core.credentials = Some(Box::new(credentials));
        self
    }

    /// Seals bodies at rest. Default: they are written down as they are.
    pub fn seal(mut self, seal: impl Seal) -> Self {
        self.core.seal = Some(Box::new(seal));
        self
    }

    /// Tells every step, one hook after another. A hook that blocks delays what comes next. Where one panics, so does the
    /// call that told it: the intent stands, and the next call goes on.
    pub fn on_event(mut self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.core.hooks.push(Box::new(hook));
        self
    }

    /// The clock. Default: that of the machine.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.core.clock = Box::new(clock);
        self
    }

    /// The source of random bytes, for keys and for waiting. Default: the system's. A source that can be guessed
    /// makes keys that can be guessed.
    pub fn randomness(
        mut self,
        fill: impl Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.core.random = Box::new(fill);
        self
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.core.settings).finish_non_exhaustive()
    }
}
