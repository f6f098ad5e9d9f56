//! Opens a store by its address; errors name the next step.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{BoxError, Store};

/// The caller's intended access to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Everything. An embedded store has one such opener at a time.
    Write,
    /// Look-ups and listings only, alongside the process that writes.
    ReadOnly,
}

/// Versions before and after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version that was there; 0 if there was no store.
    pub from: i64,
    /// The version that is there now.
    pub to: i64,
}

/// Reason why a store could not be opened, in one line that ends with the next step.
#[derive(Debug)]
pub struct OpenError {
    text: String,
    is_missing: bool,
    source: Option<BoxError>,
}

/// The addresses there are.
const KNOWN: &str = "sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, \
                     redis://HOST:PORT or dynamodb:TABLE";

/// A kind of store: its name, the feature that it needs, whether this build has it, and its schemes.
type Kind = (&'static str, &'static str, bool, &'static [&'static str]);

const KINDS: [Kind; 5] = [
    ("SQLite", "sqlite", cfg!(feature = "sqlite"), &["sqlite"]),
    ("PostgreSQL", "postgres", cfg!(feature = "postgres"), &["postgres", "postgresql"]),
    ("MySQL", "mysql", cfg!(feature = "mysql"), &["mysql", "mariadb"]),
    ("Redis", "redis", cfg!(feature = "redis"), &["redis", "rediss", "valkey", "valkeys"]),
    ("DynamoDB", "dynamodb", cfg!(feature = "dynamodb"), &["dynamodb"]),
];

/// Opens the store at `url`, such as `sqlite:payments.db` or `postgres://shop@db.internal/shop`.
///
/// Relative paths are taken from the working directory. The store must be there: a mistyped address would
/// otherwise be an empty store, in which every key used before runs again. [`create`] makes one.
pub async fn open(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    open_limited(url, access, Duration::MAX).await
}

/// Opens the store at `url` for writing, as [`open`] does, with a time limit of its steps of at most `limit`, so
/// that leases as short as that can be kept. See [`Capabilities::answers_within`](firstwrite_core::Capabilities).
pub async fn open_within(url: &str, limit: Duration) -> Result<Arc<dyn Store>, OpenError> {
    open_limited(url, Access::Write, limit).await
}

async fn open_limited(
    url: &str,
    access: Access,
    limit: Duration,
) -> Result<Arc<dyn Store>, OpenError> {
    // A build without any store has no use for them.
    let _ = (access, limit);
    // Only the scheme is ever repeated: the rest may hold a password.
    let Some((scheme, _address)) = url.split_once(':') else {
        return Err(OpenError::new(format!("the store's address has no scheme; write {KNOWN}")));
    };
    tracing::debug!(scheme, ?access, "opening a store");
    /// Opens a store on a server: its type, its options, and the time limit of its steps among them.
    #[cfg(any(feature = "_sql", feature = "redis", feature = "dynamodb"))]
    macro_rules! opened {
        ($store:ident, $options:ident, $limit:ident) => {
            match access {
                Access::Write => {
                    let mut options = crate::$options::default();
                    options.$limit = options.$limit.min(limit);
                    Ok(Arc::new(crate::$store::connect_with(url, options).await?))
                }
                Access::ReadOnly => Ok(Arc::new(crate::$store::connect_read_only(url).await?)),
            }
        };
    }
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" => match access {
            Access::Write => {
                let mut options = crate::SqliteOptions::default();
                options.busy_for = options.busy_for.min(limit);
                Ok(Arc::new(crate::SqliteStore::open_with(sqlite_path(url)?, options)?))
            }
            Access::ReadOnly => {
                Ok(Arc::new(crate::SqliteStore::open_read_only(sqlite_path(url)?)?))
            }
        },
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => opened!(PostgresStore, PostgresOptions, statement_timeout),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => opened!(MysqlStore, MysqlOptions, statement_timeout),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "valkey" | "valkeys" => opened!(RedisStore, RedisOptions, answer_for),
        #[cfg(feature = "dynamodb")]
        "dynamodb" => opened!(DynamoStore, DynamoOptions, call_timeout),
        _ => Err(not_openable(scheme)),
    }
}

/// Creates the store at `url` if it is not there, and otherwise brings it to this build's version.
///
/// It makes tables, a file or a marker; a database on a server must be there.
pub async fn create(url: &str) -> Result<Migrated, OpenError> {
    match url.split_once(':').map(|(scheme, _address)| scheme) {
        #[cfg(feature = "sqlite")]
        Some("sqlite") => crate::SqliteStore::migrate(sqlite_path(url)?),
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => {
            crate::PostgresStore::migrate(url, crate::PostgresOptions::default()).await
        }
        #[cfg(feature = "mysql")]
        Some("mysql" | "mariadb") => {
            crate::MysqlStore::migrate(url, crate::MysqlOptions::default()).await
        }
        #[cfg(feature = "redis")]
        Some("redis" | "rediss" | "valkey" | "valkeys") => {
            crate::RedisStore::migrate(url, crate::RedisOptions::default()).await
        }
        #[cfg(feature = "dynamodb")]
        Some("dynamodb") => crate::DynamoStore::migrate(url, crate::DynamoOptions::default()).await,
        // Opening reports what is wrong with any other address.
        _ => open(url, Access::Write).await.map(|_store| Migrated { from: 1, to: 1 }),
    }
}

/// Returns true if this build can open addresses that begin with `scheme`.
pub fn is_compiled_in(scheme: &str) -> bool {
    KINDS.iter().any(|(_, _, is_here, schemes)| *is_here && schemes.contains(&scheme))
}

/// The error for a scheme that no store of this build has.
fn not_openable(scheme: &str) -> OpenError {
    let kind = KINDS.iter().find(|(.., schemes)| schemes.contains(&scheme));
    OpenError::new(match kind {
        Some((name, feature, ..)) => {
            format!("this build has no {name}; build it again with the feature `{feature}`")
        }
        None => {
            format!("no store is known by the scheme `{}`; write {KNOWN}", scheme.escape_debug())
        }
    })
}

#[cfg(feature = "sqlite")]
fn sqlite_path(url: &str) -> Result<&str, OpenError> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    match path.strip_prefix("//").unwrap_or(path) {
        "" => Err(OpenError::new("the SQLite address names no file; write sqlite:FILE")),
        ":memory:" => Err(OpenError::new(
            "an SQLite store in memory would forget every key when the process ends; \
             write sqlite:FILE, or use MemoryStore in tests",
        )),
        path => Ok(path),
    }
}

impl Migrated {
    /// Returns true if there was no store before, so that this one knows no key.
    pub fn is_new(self) -> bool {
        self.from == 0
    }
}

#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "each store uses its part"))]
impl OpenError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_missing: false, source: None }
    }

    /// Makes the error for an address without a store. `text` names what was looked for; the next step is
    /// the same for all stores.
    pub(crate) fn missing(text: &str, address: impl fmt::Display) -> Self {
        let next =
            format!("check the address, or create it: firstwrite migrate --store '{address}'");
        Self { is_missing: true, ..Self::new(format!("{text}; {next}")) }
    }

    /// Makes the error for a store of another version than this build's, which is `known`.
    #[cfg(feature = "_sql")]
    pub(crate) fn other_version(
        address: impl fmt::Display,
        (found, known): (impl Into<i64>, impl Into<i64>),
    ) -> Self {
        let (found, known): (i64, i64) = (found.into(), known.into());
        let has = format!("{address} has schema version {found} and this build");
        Self::new(if found > known {
            format!("{has} knows {known}; use the newer build that migrated it")
        } else {
            format!("{has} needs {known}; run: firstwrite migrate --store {address}")
        })
    }

    /// Makes the error for a server that cannot be used.
    #[cfg(feature = "_sql")]
    pub(crate) fn unreachable(address: impl fmt::Display, error: impl Into<BoxError>) -> Self {
        let next = "check that it runs, has this database and takes this user";
        Self::new(format!("{address} cannot be used; {next}")).caused_by(error)
    }

    /// Returns true if there is no store at the address, so that [`create`] would make a new and empty one.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    pub(crate) fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
