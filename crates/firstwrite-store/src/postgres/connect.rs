//! Connections to the server: the pool, the store's own two, and the settings of each session.
//!
//! Without a pooler, settings are sent once, when a connection is made, and statements are prepared by
//! name. Behind a transaction pooler nothing outlives a transaction: settings are sent with each `BEGIN`,
//! and statements have no names.

use std::fmt::Write as _;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::driver_error::text_of;
use super::options::{Address, Pooler, PostgresOptions};
use super::tls;
use crate::{Access, OpenError};

/// The server, and how to get a connection to it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) access: Access,
    tls: MakeRustlsConnect,
    begins: Begins,
}

/// The other end of a connection, to be read from.
pub(super) type Listening =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One of the pool's: ours for rare moves, and the application's.
    Pooled,
    /// The one that writes batches.
    Writer,
    /// The one that looks up ids.
    Reader,
    /// One of the two that claim and settle messages.
    Outbox,
}

/// Statements that begin our own transactions. Each sets its isolation level, since the server's default
/// may differ.
pub(super) struct Begins {
    /// A batch of the writer's.
    pub(super) batch: String,
    /// A look-up of the reader's or the writer's.
    pub(super) look: String,
    /// A handler's, as the database or its user has set it up.
    pub(super) handler: String,
    /// A claim of messages, or its settlement.
    pub(super) outbox: String,
    /// A rare move on a pooled connection.
    pub(super) rare: String,
    /// Reads on a pooled connection, where each statement sees everything committed before it.
    pub(super) read: String,
    /// Reads on a pooled connection, where all statements see the same snapshot.
    pub(super) snapshot: String,
    /// Walks through the tables that reap. No caller relies on a deletion, so the commit does not wait for the
    /// disk: a record that comes back after a crash is past its time and is deleted again.
    pub(super) walk: String,
}

/// Lock timeout of a batch on another application's transaction: its neighbours wait as long. A blocked
/// command then waits alone, for the whole of `lock_timeout`.
const BATCH_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Lock timeout of the reaper: short, since it can come back later to what another transaction has locked.
const WALK_LOCK_TIMEOUT: Duration = Duration::from_millis(20);

/// Time for which the store waits beyond the server's own timeout. Only this detects a server that vanished
/// without closing the connection.
const GRACE: Duration = Duration::from_secs(5);

/// Settings for statements that find rows by their primary keys. A cached plan that was made while the
/// table was small would go on scanning it whole, so scans are priced out; and then JIT must be off for
/// statements that the planner takes for expensive.
const BY_INDEX: [(&str, &str); 4] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

pub(super) const COMMIT: &str = "COMMIT";

/// A commit that waits for a standby must not be ended by the timer: the server would then answer that
/// it committed, though the standby has not got it. Every change of a setting costs the server a walk
/// through all of them, so this is for servers that have a standby to wait for.
pub(super) const PATIENT_COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

pub(super) const ROLLBACK: &str = "ROLLBACK";

impl Server {
    pub(super) fn new(address: Address, access: Access) -> Result<Self, OpenError> {
        let tls = tls::connector(&address.tls)?;
        let begins = Begins::new(&address);
        Ok(Self { address, access, tls, begins })
    }

    pub(super) fn begins(&self) -> &Begins {
        &self.begins
    }

    /// Returns true if statements may be prepared by name and settings outlive a transaction.
    pub(super) fn has_sessions(&self) -> bool {
        self.address.options.pooler == Pooler::None
    }

    /// Returns the maximum duration of a pipeline of a few statements, after which the server must be gone.
    pub(super) fn pipeline_for_max(&self) -> Duration {
        self.address.options.statement_timeout.saturating_mul(3).saturating_add(GRACE)
    }

    /// A connection outside the pool.
    pub(super) async fn connect(&self, role: Role) -> Result<ClientWrapper, Error> {
        let (client, connection) = self.config(role).connect(self.tls.clone()).await?;
        // Ends with the client, which owns it.
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = text_of(&error), "a connection was lost");
            }
        });
        Ok(ClientWrapper::new(client, task))
    }

    /// Opens a connection whose notifications the caller reads.
    pub(super) async fn connect_to_listen(&self) -> Result<(Client, Listening), Error> {
        self.config(Role::Outbox).connect(self.tls.clone()).await
    }

    /// The pool; each connection it makes is shown to `verify_history` first.
    pub(super) fn pool(&self, verify_history: Hook) -> Pool {
        let options = &self.address.options;
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.config(Role::Pooled), self.tls.clone(), manager);
        Pool::builder(manager)
            .max_size(options.pool_size_max)
            .wait_timeout(Some(options.pool_wait_for))
            .create_timeout(Some(options.connect_for.saturating_mul(2)))
            .recycle_timeout(Some(options.connect_for))
            .post_create(verify_history)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a pool that has a runtime can be made")
    }

    /// Returns the error for a server that cannot be used.
    pub(super) fn unreachable(&self, error: &Error) -> OpenError {
        OpenError::unreachable(&self.address, text_of(error))
    }

    fn config(&self, role: Role) -> Config {
        let mut config = self.address.config.clone();
        if self.has_sessions() {
            let mut options = config.get_options().unwrap_or_default().to_owned();
            for (name, value) in self.settings(role) {
                let value = value.replace(' ', "\\ ");
                write!(options, " -c {name}={value}").expect("a string takes everything");
            }
            config.options(options);
        }
        config
    }

    /// Returns the settings with which a session begins.
    fn settings(&self, role: Role) -> Vec<(&'static str, String)> {
        let options = &self.address.options;
        let lock_timeout = match role {
            Role::Pooled | Role::Reader | Role::Outbox => options.lock_timeout,
            Role::Writer => BATCH_LOCK_TIMEOUT.min(options.lock_timeout),
        };
        let mut settings = timeouts(options, lock_timeout);
        if self.access == Access::ReadOnly {
            settings.push(("default_transaction_read_only", "on".to_owned()));
        }
        match role {
            // The application's own statements share these connections, so its defaults are left alone.
            Role::Pooled => {}
            Role::Writer | Role::Reader | Role::Outbox => {
                settings.push(("default_transaction_isolation", "read committed".to_owned()));
                settings.extend(BY_INDEX.map(|(name, value)| (name, value.to_owned())));
            }
        }
        settings
    }
}

impl Begins {
    fn new(address: &Address) -> Self {
        const WRITE: &str = " ISOLATION LEVEL READ COMMITTED";
        const READ: &str = " ISOLATION LEVEL READ COMMITTED READ ONLY";
        const SNAPSHOT: &str = " ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let options = &address.options;
        let has_sessions = options.pooler == Pooler::None;
        let begin = |kind: &str, lock_timeout: Duration, by_index: bool| {
            let mut sql = format!("BEGIN{kind}");
            let mut settings = Vec::new();
            if !has_sessions {
                settings = timeouts(options, lock_timeout);
            }
            if by_index {
                settings.extend(BY_INDEX.map(|(name, value)| (name, value.to_owned())));
            }
            for (name, value) in settings {
                write!(sql, "; SET LOCAL {name} = {value}").expect("a string takes everything");
            }
            sql
        };
        let lock_for = options.lock_timeout;
        Self {
            batch: begin(WRITE, BATCH_LOCK_TIMEOUT.min(lock_for), !has_sessions),
            look: begin(READ, lock_for, !has_sessions),
            handler: begin("", lock_for, false),
            outbox: begin(WRITE, lock_for, !has_sessions),
            rare: begin(WRITE, lock_for, true),
            read: begin(READ, lock_for, true),
            snapshot: begin(SNAPSHOT, lock_for, true),
            walk: format!(
                "{}; SET LOCAL lock_timeout = {}; SET LOCAL synchronous_commit = off",
                begin(WRITE, lock_for, true),
                millis(WALK_LOCK_TIMEOUT.min(lock_for))
            ),
        }
    }
}

fn timeouts(options: &PostgresOptions, lock: Duration) -> Vec<(&'static str, String)> {
    vec![
        ("statement_timeout", millis(options.statement_timeout)),
        ("lock_timeout", millis(lock)),
        ("idle_in_transaction_session_timeout", millis(options.idle_in_transaction_timeout)),
    ]
}

/// Formats a timeout. The server takes 0 as no limit, so 0 becomes the smallest limit.
fn millis(duration: Duration) -> String {
    duration.as_millis().clamp(1, u128::from(u32::MAX >> 1)).to_string()
}
