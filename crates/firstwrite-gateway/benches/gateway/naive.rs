//! The two-phase design as an application would write it by hand: one statement when a request comes, one
//! when its answer is there, each on a connection from a pool and committed alone.

use std::fmt;

use firstwrite_core::{
    AuditEntry, Audited, Body, BoxError, BoxFuture, Capabilities, Change, Draft, Found, Guard,
    Inserted, Page, Query, RecordId, Store, StoreError, StoreErrorKind, Swapped, Timestamp,
    UsagePage,
};
use firstwrite_store::deadpool_postgres::{Manager, Pool};
use firstwrite_store::tokio_postgres::NoTls;

pub(crate) struct Naive(Pool);

/// As many as there are requests at a time with 64 clients; more are slower on two cores.
const POOL_SIZE: usize = 64;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS naive_keys (id bytea PRIMARY KEY, fence bigint NOT NULL,
    tenant text NOT NULL, key text NOT NULL, fingerprint bytea NOT NULL, lease_until timestamptz NOT NULL,
    status smallint, body bytea, retained_until timestamptz)";
const RESERVE: &str = "INSERT INTO naive_keys (id, fence, tenant, key, fingerprint, lease_until)
    VALUES ($1, $2, $3, $4, $5, now() + interval '30 seconds') ON CONFLICT (id) DO NOTHING
    RETURNING (extract(epoch from now()) * 1000)::bigint";
const COMPLETE: &str = "UPDATE naive_keys SET status = $3, body = $4,
    retained_until = now() + interval '1 day' WHERE id = $1 AND fence = $2 AND status IS NULL
    RETURNING (extract(epoch from now()) * 1000)::bigint";

impl Naive {
    pub(crate) async fn connect(address: &str) -> Result<Self, BoxError> {
        let manager = Manager::new(address.parse()?, NoTls);
        let pool = Pool::builder(manager).max_size(POOL_SIZE).build()?;
        pool.get().await?.batch_execute(TABLE).await?;
        Ok(Self(pool))
    }

    async fn reserve(&self, draft: &Draft) -> Result<Timestamp, BoxError> {
        let client = self.0.get().await?;
        let statement = client.prepare_cached(RESERVE).await?;
        let (id, fence) = (&draft.id.as_bytes()[..], draft.fence.as_u64().cast_signed());
        let (tenant, key) = (draft.tenant.as_str(), draft.key.as_str());
        let digest = &draft.fingerprint.digest()[..];
        let row = client.query_one(&statement, &[&id, &fence, &tenant, &key, &digest]).await?;
        Ok(Timestamp::from_millis(row.get(0)))
    }

    async fn complete(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
    ) -> Result<Timestamp, BoxError> {
        let (Guard::Owner(fence), Change::Complete { outcome, .. }) = (guard, change) else {
            return Err("only an owner completes here".into());
        };
        let client = self.0.get().await?;
        let statement = client.prepare_cached(COMPLETE).await?;
        let (id, fence) = (&id.as_bytes()[..], fence.as_u64().cast_signed());
        let status = outcome.status.as_u16().cast_signed();
        let Body::Bytes(body) = &outcome.body else { return Err("a body is kept whole".into()) };
        let body = &body[..];
        let row = client.query_one(&statement, &[&id, &fence, &status, &body]).await?;
        Ok(Timestamp::from_millis(row.get(0)))
    }
}

fn failed(error: BoxError) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, "working by hand").caused_by(error)
}

fn not_here<T>() -> BoxFuture<'static, Result<T, StoreError>> {
    Box::pin(async { Err(failed("only new keys are measured".into())) })
}

impl Store for Naive {
    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, server_time: true, ..Capabilities::default() }
    }

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async { self.reserve(draft).await.map(Inserted::Done).map_err(failed) })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        _audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(async move {
            self.complete(id, guard, change).await.map(Swapped::Done).map_err(failed)
        })
    }

    fn get(&self, _id: RecordId) -> BoxFuture<'_, Result<Option<Found>, StoreError>> {
        not_here()
    }

    fn list<'a>(&'a self, _query: &'a Query) -> BoxFuture<'a, Result<Page, StoreError>> {
        not_here()
    }

    fn usage(
        &self,
        _after: Option<RecordId>,
        _limit: usize,
    ) -> BoxFuture<'_, Result<UsagePage, StoreError>> {
        not_here()
    }

    fn reap(&self, _limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        not_here()
    }

    fn audits(&self, _id: RecordId) -> BoxFuture<'_, Result<Vec<Audited>, StoreError>> {
        not_here()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        not_here()
    }

    fn check_history(&self, _id: RecordId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl fmt::Debug for Naive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Naive")
    }
}
