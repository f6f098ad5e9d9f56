//! The stores, by feature, and what opens, watches and wraps them.
//!
//! [`open`] opens a store by its address, for programs that learn it at run time; an application that knows its
//! store uses the store's type. A driver is re-exported beside the store in whose signatures its types stand.

#[cfg(feature = "redis-store")]
pub use firstwrite_store::{AppendFsync, RedisOptions, RedisStore};
#[cfg(feature = "sqlite")]
pub use firstwrite_store::{
    ClockJump, ForeignFile, MissingFile, SqliteOptions, SqliteStore, SqliteTx, Stopwatch, rusqlite,
};
#[cfg(feature = "dynamodb")]
pub use firstwrite_store::{DynamoOptions, DynamoStore, DynamoTx, aws_sdk_dynamodb};
#[cfg(feature = "mysql")]
pub use firstwrite_store::{MysqlOptions, MysqlStore, MysqlTx, mysql_async};
#[cfg(feature = "postgres")]
pub use firstwrite_store::{
    PipelinedBegin, Pooler, PostgresOptions, PostgresStore, PostgresTx, SchemaName,
    deadpool_postgres, tokio_postgres,
};
#[cfg(feature = "sqlx")]
pub use firstwrite_store::{SqlxPostgresStore, SqlxTx, sqlx};

pub use firstwrite_wrappers::{BreakerOptions, BreakerStore, MovingStore};
#[cfg(feature = "redis-cache")]
pub use firstwrite_wrappers::{CacheCounts, CacheError, CacheOptions, CacheScope, CachedStore};
#[cfg(feature = "sealed")]
pub use firstwrite_wrappers::{KeyRing, KeyRingError, SealedStore, SealingKey, UnopenedCounts};

#[cfg(any(feature = "dynamodb", feature = "sqlite"))]
pub use firstwrite_store::Clock;
pub use firstwrite_store::doctor;
pub use firstwrite_store::{Access, Migrated, OpenError, create, is_compiled_in, open};
#[cfg(feature = "_history")]
pub use firstwrite_store::{ClearedLoss, HistoryClearance, HistoryLoss};
#[cfg(feature = "_inbox")]
pub use firstwrite_store::{Consumed, Inbox, InboxError};
