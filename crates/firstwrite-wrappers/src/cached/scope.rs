//! The database to which the entries belong, so that two databases that share one Redis never mix.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Identity of the database whose records are cached, and of its line of history.
#[derive(Clone)]
pub struct CacheScope {
    identity: String,
    /// The server's incarnation (start), as far as is known. `None` for a store that has only one.
    incarnation: Option<Arc<Incarnation>>,
}

type Incarnation = dyn Fn() -> Option<i64> + Send + Sync;

/// Prefix of the digested bytes, so that no digest equals one of another kind.
const LABEL: &[u8] = b"firstwrite cache scope 1";

impl CacheScope {
    /// Makes the scope of a store that has no identity of its own, from a name that no other database has,
    /// and that is changed when its history is (a backup restored, a new file).
    pub fn named(identity: &str) -> Self {
        Self { identity: format!("name {identity}"), incarnation: None }
    }

    /// Makes the scope of a PostgreSQL schema: the database, the creation time of its tables, and the start
    /// of the server. After a restart, a fail-over or a restored backup the cache starts empty, because
    /// cached records may belong to a history that was lost.
    #[cfg(feature = "postgres")]
    pub async fn of_postgres(
        store: &firstwrite_store::PostgresStore,
    ) -> Result<Self, firstwrite_core::StoreError> {
        let identity = format!("postgres {}", store.identity().await?);
        let store = store.clone();
        let incarnation = Arc::new(move || Some(store.incarnation()).filter(|known| *known != 0));
        Ok(Self { identity, incarnation: Some(incarnation) })
    }

    /// Returns the digest that is part of every key and entry; `None` while the server is not identified.
    pub(super) fn digest(&self) -> Option<[u8; 16]> {
        let incarnation = match &self.incarnation {
            Some(incarnation) => incarnation()?,
            None => 0,
        };
        let mut hash = Sha256::new();
        hash.update(LABEL);
        hash.update(incarnation.to_be_bytes());
        hash.update(self.identity.as_bytes());
        hash.finalize().first_chunk().copied()
    }
}

impl fmt::Debug for CacheScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheScope").field(&self.identity).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn databases_and_their_histories_stay_apart() {
        assert_ne!(CacheScope::named("a").digest(), CacheScope::named("b").digest());
        let started = Arc::new(AtomicI64::new(0));
        let seen = Arc::clone(&started);
        let incarnation = move || Some(seen.load(Ordering::Relaxed)).filter(|known| *known != 0);
        let identity = "postgres x".to_owned();
        let scope = CacheScope { identity, incarnation: Some(Arc::new(incarnation)) };
        assert_eq!(scope.digest(), None, "not asked yet");
        started.store(1, Ordering::Relaxed);
        let first = scope.digest();
        started.store(2, Ordering::Relaxed);
        assert_ne!(scope.digest(), first, "another start of the server");
    }
}
