//! The books in PostgreSQL, in a schema of their own beside the records.

use firstwrite_core::{Message, Tenant};
use firstwrite_store::tokio_postgres::Row;
use firstwrite_store::{Consumed, Inbox, OpenError, PostgresOptions, PostgresStore, PostgresTx};

use super::{Ledger, Payment, PaymentPage, Refund, Settled};
use crate::order::Order;
use crate::problem::Failure;

/// Listings and cursors follow `sequence`; callers see `id`, which is random so that a tenant cannot count
/// another tenant's payments. The lock is for demos that start at the same moment: `IF NOT EXISTS` alone does
/// not keep two of them from creating the same object.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(hashtextextended('firstwrite demo', 0));
    CREATE SCHEMA IF NOT EXISTS demo;
    CREATE TABLE IF NOT EXISTS demo.payments (
        sequence   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id         text        NOT NULL UNIQUE,
        tenant     text        NOT NULL,
        amount     bigint      NOT NULL,
        currency   text        NOT NULL,
        customer   text        NOT NULL,
        status     text        NOT NULL,
        provider_id text,
        settled_at timestamptz,
        refunded   bigint      NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX IF NOT EXISTS payments_of_tenant ON demo.payments (tenant, sequence);
    CREATE TABLE IF NOT EXISTS demo.refunds (
        sequence   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id         text        NOT NULL UNIQUE,
        payment_id text        NOT NULL REFERENCES demo.payments (id),
        amount     bigint      NOT NULL CHECK (amount > 0),
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    COMMIT;
";

const INSERT_PAYMENT: &str = "
    INSERT INTO demo.payments (id, tenant, amount, currency, customer, status)
    VALUES ('pay_' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 24),
            $1, $2, $3, $4, 'pending')
    RETURNING id, amount, currency, customer, status, refunded,
        to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
        provider_id, to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";

const INSERT_REFUND: &str = "
    INSERT INTO demo.refunds (id, payment_id, amount)
    VALUES ('re_' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 24), $1, $2)
    RETURNING id, payment_id, amount,
        to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";

const PAYMENT: &str = "
    SELECT id, amount, currency, customer, status, refunded,
        to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
        provider_id, to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')
    FROM demo.payments";

/// Opens the store, after bringing its tables up to date: a demo is ready in one command.
pub(super) async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::migrate(url, PostgresOptions::default()).await?;
    PostgresStore::connect(url).await
}

/// Creates the tables that are not there yet.
pub(super) async fn create(store: &PostgresStore) -> Result<(), Failure> {
    store.pool().get().await?.batch_execute(TABLES).await?;
    Ok(())
}

/// Looks a tenant's payment up.
pub(super) async fn payment(
    store: &PostgresStore,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<Payment>, Failure> {
    let sql = format!("{PAYMENT} WHERE id = $1 AND tenant = $2");
    let row = store.pool().get().await?.query_opt(&sql, &[&id, &tenant.as_str()]).await?;
    Ok(row.as_ref().map(payment_of_row).transpose()?)
}

/// One page of a tenant's payments; `None` if `after` is not one of its payments.
pub(super) async fn payments(
    store: &PostgresStore,
    tenant: &Tenant,
    limit: usize,
    after: Option<&str>,
) -> Result<Option<PaymentPage>, Failure> {
    let client = store.pool().get().await?;
    let tenant = tenant.as_str();
    let before = match after {
        None => i64::MAX,
        Some(cursor) => {
            let sql = "SELECT sequence FROM demo.payments WHERE id = $1 AND tenant = $2";
            match client.query_opt(sql, &[&cursor, &tenant]).await? {
                Some(row) => row.try_get(0)?,
                None => return Ok(None),
            }
        }
    };
    let count = "SELECT count(*) FROM demo.payments WHERE tenant = $1";
    let count = client.query_one(count, &[&tenant]).await?.try_get(0)?;
    // One more than asked for tells whether there is a next page.
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let page =
        format!("{PAYMENT} WHERE tenant = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3");
    let rows = client.query(&page, &[&tenant, &before, &wanted]).await?;
    let mut payments = rows.iter().map(payment_of_row).collect::<Result<Vec<_>, _>>()?;
    let more = payments.len() > limit;
    payments.truncate(limit);
    let next = payments.last().filter(|_| more).map(|last| last.id.clone());
    Ok(Some(PaymentPage { count, payments, next }))
}

/// Settles a payment, if the notice of it was not seen before.
pub(super) async fn settle(
    store: &PostgresStore,
    inbox: &Inbox,
    settled: &Settled,
) -> Result<Consumed, Failure> {
    let Settled { event, payment, provider_id } = settled;
    let mut client = store.pool().get().await?;
    let tx = client.transaction().await?;
    let consumed = store.consume(inbox, event, &*tx).await?;
    if consumed == Consumed::First {
        let sql = "UPDATE demo.payments SET status = 'settled', provider_id = $2,
                       settled_at = clock_timestamp()
                   WHERE id = $1";
        tx.execute(sql, &[payment, provider_id]).await?;
    }
    tx.commit().await?;
    Ok(consumed)
}

impl Ledger for PostgresTx {
    async fn insert_payment(&mut self, tenant: &Tenant, order: &Order) -> Result<Payment, Failure> {
        let Order { amount, currency, customer } = order;
        let row =
            self.query_one(INSERT_PAYMENT, &[&tenant.as_str(), amount, currency, customer]).await?;
        Ok(payment_of_row(&row)?)
    }

    async fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        let sql = format!("{PAYMENT} WHERE id = $1 AND tenant = $2 FOR UPDATE");
        let row = self.query_opt(&sql, &[&id, &tenant.as_str()]).await?;
        Ok(row.as_ref().map(payment_of_row).transpose()?)
    }

    async fn insert_refund(&mut self, payment: &str, amount: i64) -> Result<Refund, Failure> {
        let sql = "UPDATE demo.payments SET refunded = refunded + $2 WHERE id = $1";
        self.execute(sql, &[&payment, &amount]).await?;
        let row = self.query_one(INSERT_REFUND, &[&payment, &amount]).await?;
        Ok(Refund {
            id: row.try_get(0)?,
            payment: row.try_get(1)?,
            amount: row.try_get(2)?,
            status: "succeeded",
            created_at: row.try_get(3)?,
        })
    }

    async fn enqueue(&mut self, message: &Message) -> Result<(), Failure> {
        Ok(PostgresTx::enqueue(self, message)?)
    }
}

fn payment_of_row(row: &Row) -> Result<Payment, firstwrite_store::tokio_postgres::Error> {
    Ok(Payment {
        id: row.try_get(0)?,
        amount: row.try_get(1)?,
        currency: row.try_get(2)?,
        customer: row.try_get(3)?,
        status: row.try_get(4)?,
        refunded: row.try_get(5)?,
        created_at: row.try_get(6)?,
        provider_id: row.try_get(7)?,
        settled_at: row.try_get(8)?,
    })
}
