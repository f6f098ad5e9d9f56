//! The books in SQLite, in the same file as the records.

use std::future::ready;

use firstwrite_core::{Message, StoreError, Tenant};
use firstwrite_store::rusqlite::{self, Connection, OptionalExtension as _, Row, params};
use firstwrite_store::{Consumed, Inbox, SqliteStore, SqliteTx};

use super::{Ledger, Payment, PaymentPage, Refund, Settled};
use crate::order::Order;
use crate::problem::Failure;

/// `sequence` is the order of commits, which listings and cursors follow; callers see `id`, which is random so
/// that a tenant cannot count another tenant's payments.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS demo_payments (
        sequence   INTEGER PRIMARY KEY,
        id         TEXT    NOT NULL UNIQUE,
        tenant     TEXT    NOT NULL,
        amount     INTEGER NOT NULL,
        currency   TEXT    NOT NULL,
        customer   TEXT    NOT NULL,
        status     TEXT    NOT NULL,
        provider_id TEXT,
        settled_at TEXT,
        refunded   INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
        created_at TEXT    NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS demo_payments_of_tenant ON demo_payments (tenant, sequence);
    CREATE TABLE IF NOT EXISTS demo_refunds (
        sequence   INTEGER PRIMARY KEY,
        id         TEXT    NOT NULL UNIQUE,
        payment_id TEXT    NOT NULL REFERENCES demo_payments (id),
        amount     INTEGER NOT NULL CHECK (amount > 0),
        created_at TEXT    NOT NULL
    ) STRICT;
";

/// Creates the tables that are not there yet.
pub(super) async fn create(store: &SqliteStore) -> Result<(), StoreError> {
    store.write(|connection| connection.execute_batch(TABLES)).await
}

impl Ledger for SqliteTx<'_> {
    // The writer's connection is at hand: nothing here ever waits.

    fn insert_payment(
        &mut self,
        tenant: &Tenant,
        order: &Order,
    ) -> impl Future<Output = Result<Payment, Failure>> {
        ready(insert_payment(self, tenant, order).map_err(Failure::from))
    }

    fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> impl Future<Output = Result<Option<Payment>, Failure>> {
        // There is one writer, so no other refund can run at the same time.
        ready(payment(self, tenant, id).map_err(Failure::from))
    }

    fn insert_refund(
        &mut self,
        payment: &str,
        amount: i64,
    ) -> impl Future<Output = Result<Refund, Failure>> {
        ready(insert_refund(self, payment, amount).map_err(Failure::from))
    }

    fn enqueue(&mut self, message: &Message) -> impl Future<Output = Result<(), Failure>> {
        ready(SqliteTx::enqueue(self, message).map_err(Failure::from))
    }
}

/// Writes a payment.
pub(super) fn insert_payment(
    connection: &Connection,
    tenant: &Tenant,
    order: &Order,
) -> rusqlite::Result<Payment> {
    connection
        .prepare_cached(
            "INSERT INTO demo_payments (id, tenant, amount, currency, customer, status, created_at)
             VALUES ('pay_' || lower(hex(randomblob(12))), ?1, ?2, ?3, ?4, 'pending',
                     strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
             RETURNING id, amount, currency, customer, status, refunded, created_at, provider_id,
                       settled_at",
        )?
        .query_row(
            params![tenant.as_str(), order.amount, order.currency, order.customer],
            payment_of_row,
        )
}

/// Looks a tenant's payment up.
pub(super) fn payment(
    connection: &Connection,
    tenant: &Tenant,
    id: &str,
) -> rusqlite::Result<Option<Payment>> {
    connection
        .prepare_cached(
            "SELECT id, amount, currency, customer, status, refunded, created_at, provider_id,
                    settled_at
             FROM demo_payments WHERE id = ?1 AND tenant = ?2",
        )?
        .query_row(params![id, tenant.as_str()], payment_of_row)
        .optional()
}

/// One page of a tenant's payments; `None` if `after` is not one of its payments.
pub(super) fn payments(
    connection: &Connection,
    tenant: &Tenant,
    limit: usize,
    after: Option<&str>,
) -> rusqlite::Result<Option<PaymentPage>> {
    let tenant = tenant.as_str();
    let before = match after {
        None => i64::MAX,
        Some(cursor) => {
            let mut sequence = connection.prepare_cached(
                "SELECT sequence FROM demo_payments WHERE id = ?1 AND tenant = ?2",
            )?;
            match sequence.query_row(params![cursor, tenant], |row| row.get(0)).optional()? {
                Some(sequence) => sequence,
                None => return Ok(None),
            }
        }
    };
    let count = connection
        .prepare_cached("SELECT count(*) FROM demo_payments WHERE tenant = ?1")?
        .query_row([tenant], |row| row.get(0))?;
    // One more than asked for tells whether there is a next page.
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut payments = connection
        .prepare_cached(
            "SELECT id, amount, currency, customer, status, refunded, created_at, provider_id,
                    settled_at
             FROM demo_payments WHERE tenant = ?1 AND sequence < ?2
             ORDER BY sequence DESC LIMIT ?3",
        )?
        .query_map(params![tenant, before, wanted], payment_of_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let more = payments.len() > limit;
    payments.truncate(limit);
    let next = payments.last().filter(|_| more).map(|last| last.id.clone());
    Ok(Some(PaymentPage { count, payments, next }))
}

/// Writes a refund of a payment that has enough left.
pub(super) fn insert_refund(
    connection: &Connection,
    payment: &str,
    amount: i64,
) -> rusqlite::Result<Refund> {
    connection
        .prepare_cached("UPDATE demo_payments SET refunded = refunded + ?2 WHERE id = ?1")?
        .execute(params![payment, amount])?;
    connection
        .prepare_cached(
            "INSERT INTO demo_refunds (id, payment_id, amount, created_at)
             VALUES ('re_' || lower(hex(randomblob(12))), ?1, ?2,
                     strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
             RETURNING id, payment_id, amount, created_at",
        )?
        .query_row(params![payment, amount], |row| {
            Ok(Refund {
                id: row.get(0)?,
                payment: row.get(1)?,
                amount: row.get(2)?,
                status: "succeeded",
                created_at: row.get(3)?,
            })
        })
}

/// Settles a payment, if the notice of it was not seen before.
pub(super) fn settle(
    connection: &Connection,
    inbox: &Inbox,
    settled: &Settled,
) -> rusqlite::Result<Consumed> {
    let Settled { event, payment, provider_id } = settled;
    let consumed = SqliteStore::consume(inbox, event, connection)
        .map_err(|error| rusqlite::Error::UserFunctionError(error.into()))?;
    if consumed == Consumed::First {
        connection
            .prepare_cached(
                "UPDATE demo_payments SET status = 'settled', provider_id = ?2,
                     settled_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                 WHERE id = ?1",
            )?
            .execute(params![payment, provider_id])?;
    }
    Ok(consumed)
}

fn payment_of_row(row: &Row<'_>) -> rusqlite::Result<Payment> {
    Ok(Payment {
        id: row.get(0)?,
        amount: row.get(1)?,
        currency: row.get(2)?,
        customer: row.get(3)?,
        status: row.get(4)?,
        refunded: row.get(5)?,
        created_at: row.get(6)?,
        provider_id: row.get(7)?,
        settled_at: row.get(8)?,
    })
}
