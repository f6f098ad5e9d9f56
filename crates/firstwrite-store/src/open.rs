//! Opens a store by its address; errors name the next step.

use std::fmt;
use std::sync::Arc;

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

/// Refuses a path that is not a regular file: reading a pipe or a device could block for ever. A missing
/// path is left to the reader to report.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) fn check_is_file(path: &std::path::Path) -> Result<(), OpenError> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let place = path.display();
        return Err(OpenError::new(format!(
            "{place} is not a regular file; give sslrootcert a PEM file"
        )));
    }
    Ok(())
}

/// Opens the store at `url`, such as `sqlite:payments.db` or `postgres://shop@db.internal/shop`.
///
/// Relative paths are taken from the working directory. The store must be there: a mistyped address would
/// otherwise be an empty store, in which every key used before runs again. [`create`] makes one.
pub async fn open(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    // Only the scheme is ever repeated: the rest may hold a password.
    let Some((scheme, address)) = url.split_once(':') else {
        return Err(OpenError::new(format!("the store's address has no scheme; write {KNOWN}")));
    };
    match scheme {
        "sqlite" => open_sqlite(address, access),
        "postgres" | "postgresql" => open_postgres(url, access).await,
        "mysql" | "mariadb" => open_mysql(url, access).await,
        "redis" | "rediss" | "valkey" | "valkeys" => open_redis(url, access).await,
        "dynamodb" => open_dynamodb(url, access).await,
        _ => Err(OpenError::new(format!(
            "no store is known by the scheme `{}`; write {KNOWN}",
            scheme.escape_debug()
        ))),
    }
}

/// Creates the store at `url` if it is not there, and otherwise brings it to this build's version.
///
/// It makes tables, a file or a marker; a database on a server must be there.
pub async fn create(url: &str) -> Result<Migrated, OpenError> {
    match url.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", address)) => crate::SqliteStore::migrate(sqlite_path(address)?),
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            crate::PostgresStore::migrate(url, crate::PostgresOptions::default()).await
        }
        #[cfg(feature = "mysql")]
        Some(("mysql" | "mariadb", _)) => {
            crate::MysqlStore::migrate(url, crate::MysqlOptions::default()).await
        }
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => {
            crate::RedisStore::migrate(url, crate::RedisOptions::default()).await
        }
        #[cfg(feature = "dynamodb")]
        Some(("dynamodb", _)) => {
            crate::DynamoStore::migrate(url, crate::DynamoOptions::default()).await
        }
        // Opening reports what is wrong with any other address.
        _ => open(url, Access::Write).await.map(|_store| Migrated { from: 1, to: 1 }),
    }
}

/// Returns true if this build can open addresses that begin with `scheme`.
pub fn is_compiled_in(scheme: &str) -> bool {
    let known = [
        (cfg!(feature = "sqlite"), &["sqlite"][..]),
        (cfg!(feature = "postgres"), &["postgres", "postgresql"]),
        (cfg!(feature = "mysql"), &["mysql", "mariadb"]),
        (cfg!(feature = "redis"), &["redis", "rediss", "valkey", "valkeys"]),
        (cfg!(feature = "dynamodb"), &["dynamodb"]),
    ];
    known.iter().any(|(is_here, schemes)| *is_here && schemes.contains(&scheme))
}

#[cfg(feature = "sqlite")]
fn open_sqlite(address: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    use crate::SqliteStore;

    let path = sqlite_path(address)?;
    let store = match access {
        Access::Write => SqliteStore::open(path)?,
        Access::ReadOnly => SqliteStore::open_read_only(path)?,
    };
    Ok(Arc::new(store))
}

#[cfg(feature = "sqlite")]
fn sqlite_path(address: &str) -> Result<&str, OpenError> {
    match address.strip_prefix("//").unwrap_or(address) {
        "" => Err(OpenError::new("the SQLite address names no file; write sqlite:FILE")),
        ":memory:" => Err(OpenError::new(
            "an SQLite store in memory would forget every key when the process ends; \
             write sqlite:FILE, or use MemoryStore in tests",
        )),
        path => Ok(path),
    }
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_address: &str, _access: Access) -> Result<Arc<dyn Store>, OpenError> {
    Err(OpenError::new("this build has no SQLite; build it again with the feature `sqlite`"))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    use crate::PostgresStore;

    let store = match access {
        Access::Write => PostgresStore::connect(url).await?,
        Access::ReadOnly => PostgresStore::connect_read_only(url).await?,
    };
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_postgres(_url: &str, _access: Access) -> Result<Arc<dyn Store>, OpenError> {
    Err(OpenError::new("this build has no PostgreSQL; build it again with the feature `postgres`"))
}

#[cfg(feature = "mysql")]
async fn open_mysql(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    use crate::MysqlStore;

    let store = match access {
        Access::Write => MysqlStore::connect(url).await?,
        Access::ReadOnly => MysqlStore::connect_read_only(url).await?,
    };
    Ok(Arc::new(store))
}

#[cfg(not(feature = "mysql"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_mysql(_url: &str, _access: Access) -> Result<Arc<dyn Store>, OpenError> {
    Err(OpenError::new("this build has no MySQL; build it again with the feature `mysql`"))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    use crate::RedisStore;

    let store = match access {
        Access::Write => RedisStore::connect(url).await?,
        Access::ReadOnly => RedisStore::connect_read_only(url).await?,
    };
    Ok(Arc::new(store))
}

#[cfg(not(feature = "redis"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_redis(_url: &str, _access: Access) -> Result<Arc<dyn Store>, OpenError> {
    Err(OpenError::new("this build has no Redis; build it again with the feature `redis`"))
}

#[cfg(feature = "dynamodb")]
async fn open_dynamodb(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    use crate::DynamoStore;

    let store = match access {
        Access::Write => DynamoStore::connect(url).await?,
        Access::ReadOnly => DynamoStore::connect_read_only(url).await?,
    };
    Ok(Arc::new(store))
}

#[cfg(not(feature = "dynamodb"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_dynamodb(_url: &str, _access: Access) -> Result<Arc<dyn Store>, OpenError> {
    Err(OpenError::new("this build has no DynamoDB; build it again with the feature `dynamodb`"))
}

impl Migrated {
    /// Returns true if there was no store before, so that this one knows no key.
    pub fn is_new(self) -> bool {
        self.from == 0
    }
}

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

    /// Returns true if there is no store at the address, so that [`create`] would make a new and empty one.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "each store uses its part"))]
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

#[cfg(all(test, unix, any(feature = "mysql", feature = "postgres", feature = "redis")))]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_as_certificates() {
        for path in ["/dev/null", "/tmp"] {
            let refused = check_is_file(Path::new(path)).unwrap_err().to_string();
            assert!(refused.starts_with(path) && refused.contains("regular file"), "{refused}");
        }
        assert!(check_is_file(Path::new("/no/such/file")).is_ok(), "its reader says so");
    }
}
