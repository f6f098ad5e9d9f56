//! The books in MySQL or MariaDB, beside the records.

use firstwrite_core::{Message, Tenant};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{self, FromRowError, Pool, Row, from_row_opt};
use firstwrite_store::{Consumed, Inbox, MysqlOptions, MysqlStore, MysqlTx};

use super::{Ledger, Payment, PaymentPage, Refund, Settled, unopened};
use crate::order::Order;
use crate::problem::Failure;

/// The store, and connections for what is asked outside of handlers.
#[derive(Clone, Debug)]
pub(crate) struct MysqlBooks {
    pub(super) store: MysqlStore,
    pool: Pool,
}

/// Listings and cursors follow `sequence`; callers see `id`, which is random so that a tenant cannot count
/// another tenant's payments.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS demo_payments (
        sequence    BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
        id          VARCHAR(40)  NOT NULL UNIQUE,
        tenant      VARCHAR(255) NOT NULL,
        amount      BIGINT       NOT NULL,
        currency    TEXT         NOT NULL,
        customer    TEXT         NOT NULL,
        status      TEXT         NOT NULL,
        provider_id TEXT,
        settled_at  DATETIME(3),
        refunded    BIGINT       NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
        created_at  DATETIME(3)  NOT NULL,
        KEY demo_payments_of_tenant (tenant, sequence)
    ) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS demo_refunds (
        sequence   BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
        id         VARCHAR(40) NOT NULL UNIQUE,
        payment_id VARCHAR(40) NOT NULL REFERENCES demo_payments (id),
        amount     BIGINT      NOT NULL CHECK (amount > 0),
        created_at DATETIME(3) NOT NULL
    ) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
];

const INSERT_PAYMENT: &str = "
    INSERT INTO demo_payments (id, tenant, amount, currency, customer, status, created_at)
    VALUES (CONCAT('pay_', LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 24)), ?, ?, ?, ?, 'pending',
            UTC_TIMESTAMP(3))";

const INSERT_REFUND: &str = "
    INSERT INTO demo_refunds (id, payment_id, amount, created_at)
    VALUES (CONCAT('re_', LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 24)), ?, ?, UTC_TIMESTAMP(3))";

const REFUND: &str = "
    SELECT id, payment_id, amount,
        CONCAT(LEFT(DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z')
    FROM demo_refunds WHERE sequence = LAST_INSERT_ID()";

const PAYMENT: &str = "
    SELECT id, amount, currency, customer, status, refunded,
        CONCAT(LEFT(DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z'),
        provider_id, CONCAT(LEFT(DATE_FORMAT(settled_at, '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z')
    FROM demo_payments";

impl MysqlBooks {
    /// Opens the store, after bringing all tables up to date: a demo is ready in one command.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let migrated = MysqlStore::migrate(url, MysqlOptions::default()).await;
        migrated.map_err(|error| unopened(&error))?;
        let store = MysqlStore::connect(url).await.map_err(|error| unopened(&error))?;
        let pool = store.own_pool();
        let mut connection = pool.get_conn().await?;
        for sql in TABLES {
            connection.query_drop(sql).await?;
        }
        Ok(Self { store, pool })
    }

    /// Looks a tenant's payment up.
    pub(super) async fn payment(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        let sql = format!("{PAYMENT} WHERE id = ? AND tenant = ?");
        let mut connection = self.pool.get_conn().await?;
        let row: Option<Row> = connection.exec_first(sql, (id, tenant.as_str())).await?;
        Ok(row.map(payment_of_row).transpose()?)
    }

    /// One page of a tenant's payments; `None` if `after` is not one of its payments.
    pub(super) async fn payments(
        &self,
        tenant: &Tenant,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Option<PaymentPage>, Failure> {
        let mut connection = self.pool.get_conn().await?;
        let tenant = tenant.as_str();
        let before: i64 = match after {
            None => i64::MAX,
            Some(cursor) => {
                let sql = "SELECT sequence FROM demo_payments WHERE id = ? AND tenant = ?";
                match connection.exec_first(sql, (cursor, tenant)).await? {
                    Some(sequence) => sequence,
                    None => return Ok(None),
                }
            }
        };
        let count = "SELECT COUNT(*) FROM demo_payments WHERE tenant = ?";
        let count: Option<i64> = connection.exec_first(count, (tenant,)).await?;
        // One more than asked for tells whether there is a next page.
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let page =
            format!("{PAYMENT} WHERE tenant = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?");
        let rows: Vec<Row> = connection.exec(page, (tenant, before, wanted)).await?;
        let mut payments = rows.into_iter().map(payment_of_row).collect::<Result<Vec<_>, _>>()?;
        let more = payments.len() > limit;
        payments.truncate(limit);
        let next = payments.last().filter(|_| more).map(|last| last.id.clone());
        Ok(Some(PaymentPage { count: count.unwrap_or(0), payments, next }))
    }

    /// Settles a payment, if the notice of it was not seen before.
    pub(super) async fn settle(
        &self,
        inbox: &Inbox,
        settled: &Settled,
    ) -> Result<Consumed, Failure> {
        let Settled { event, payment, provider_id } = settled;
        let mut connection = self.pool.get_conn().await?;
        connection.query_drop("START TRANSACTION").await?;
        // Dropped before its end, the connection is reset, and the server rolls back.
        let consumed = self.store.consume(inbox, event, &mut connection).await?;
        if consumed == Consumed::First {
            let sql = "UPDATE demo_payments SET status = 'settled', provider_id = ?,
                           settled_at = UTC_TIMESTAMP(3) WHERE id = ?";
            connection.exec_drop(sql, (provider_id, payment)).await?;
        }
        connection.query_drop("COMMIT").await?;
        Ok(consumed)
    }

    /// Finishes what waits and lets go of the store.
    pub(super) async fn close(self) {
        self.store.close().await;
        if let Err(error) = self.pool.disconnect().await {
            tracing::debug!(%error, "a connection was not closed by hand");
        }
    }
}

impl Ledger for MysqlTx {
    async fn insert_payment(&mut self, tenant: &Tenant, order: &Order) -> Result<Payment, Failure> {
        let Order { amount, currency, customer } = order;
        self.exec_drop(INSERT_PAYMENT, (tenant.as_str(), amount, currency, customer)).await?;
        let sql = format!("{PAYMENT} WHERE sequence = LAST_INSERT_ID()");
        Ok(payment_of_row(one(self.query_first(sql).await?)?)?)
    }

    async fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        let sql = format!("{PAYMENT} WHERE id = ? AND tenant = ? FOR UPDATE");
        let row: Option<Row> = self.exec_first(sql, (id, tenant.as_str())).await?;
        Ok(row.map(payment_of_row).transpose()?)
    }

    async fn insert_refund(&mut self, payment: &str, amount: i64) -> Result<Refund, Failure> {
        let sql = "UPDATE demo_payments SET refunded = refunded + ? WHERE id = ?";
        self.exec_drop(sql, (amount, payment)).await?;
        self.exec_drop(INSERT_REFUND, (payment, amount)).await?;
        let row: Row = one(self.query_first(REFUND).await?)?;
        let (id, payment, amount, created_at) = from_row_opt(row)?;
        Ok(Refund { id, payment, amount, status: "succeeded", created_at })
    }

    async fn enqueue(&mut self, message: &Message) -> Result<(), Failure> {
        Ok(MysqlTx::enqueue(self, message)?)
    }
}

/// The row that was just written.
fn one(row: Option<Row>) -> Result<Row, Failure> {
    row.ok_or_else(|| {
        mysql_async::Error::Other("a row that was written is not there".into()).into()
    })
}

fn payment_of_row(row: Row) -> Result<Payment, FromRowError> {
    let (id, amount, currency, customer, status, refunded, created_at, provider_id, settled_at) =
        from_row_opt(row)?;
    Ok(Payment {
        id,
        amount,
        currency,
        customer,
        status,
        provider_id,
        refunded,
        created_at,
        settled_at,
    })
}
