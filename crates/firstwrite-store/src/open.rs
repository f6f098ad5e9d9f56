//! Opening a store by its address, and what to do when it cannot be opened.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{BoxError, Store};

/// What the opener is going to do with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything. An embedded store has one such opener at a time.
    Write,
    /// Look-ups and listings only, beside whoever writes.
    ReadOnly,
}

/// Why a store could not be opened, in one line that ends with the next step.
#[derive(Debug)]
pub struct OpenError {
    text: String,
    source: Option<BoxError>,
}

/// The addresses there are.
const KNOWN: &str = "sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, \
                     redis://HOST:PORT or dynamodb:TABLE";

/// Opens the store at `url`, such as `sqlite:payments.db` or `postgres://shop@db.internal/shop`.
///
/// Relative paths are taken from the working directory. The tables of any other store must be there;
/// an SQLite file is made if it is not.
pub async fn open(url: &str, access: Access) -> Result<Arc<dyn Store>, OpenError> {
    // Only the scheme is ever repeated: what follows may hold a password.
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

/// Whether this build can open addresses that begin with `scheme`.
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

    let path = address.strip_prefix("//").unwrap_or(address);
    if path.is_empty() {
        return Err(OpenError::new("the SQLite address names no file; write sqlite:FILE"));
    }
    if path == ":memory:" {
        return Err(OpenError::new(
            "an SQLite store in memory would forget every key when the process ends; \
             write sqlite:FILE, or use MemoryStore in tests",
        ));
    }
    let store = match access {
        Access::Write => SqliteStore::open(path)?,
        Access::ReadOnly => SqliteStore::open_read_only(path)?,
    };
    Ok(Arc::new(store))
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

impl OpenError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
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
