//! The books in an SQLite file of their own, where the records' store keeps no messages: Redis.
//!
//! Records, payments and messages are commits of their own then. A crash between two of them leaves the record
//! uncertain, and never a second payment.

use std::sync::Arc;

use anyhow::Context as _;
use firstwrite_core::{Message, Store, Tenant};
use firstwrite_store::{Access, OpenError, SqliteStore};

use super::{Ledger, Payment, Refund, sqlite, unopened};
use crate::STORE_DEFAULT;
use crate::order::Order;
use crate::problem::Failure;

/// A store for the records, and another for the books and the messages.
#[derive(Clone, Debug)]
pub(crate) struct BooksApart {
    pub(super) records: Arc<dyn Store>,
    pub(super) books: SqliteStore,
}

impl BooksApart {
    /// Opens the records where they are, and the books in the demo's usual file.
    pub(super) async fn open(address: &str) -> anyhow::Result<Self> {
        let records = open_records(address).await.map_err(|error| unopened(&error))?;
        let books = SqliteStore::open_or_create(STORE_DEFAULT);
        let books = books.map_err(|error| unopened(&error))?;
        sqlite::create(&books)
            .await
            .with_context(|| format!("cannot make tables in {STORE_DEFAULT}"))?;
        Ok(Self { records, books })
    }

    pub(super) async fn close(self) {
        drop(self.records);
        self.books.close().await;
    }
}

/// Opens the records' store, after making one that is not there: a demo is ready in one command.
async fn open_records(address: &str) -> Result<Arc<dyn Store>, OpenError> {
    if let Ok(store) = firstwrite_store::open(address, Access::Write).await {
        return Ok(store);
    }
    firstwrite_store::create(address).await?;
    firstwrite_store::open(address, Access::Write).await
}

impl Ledger for SqliteStore {
    async fn insert_payment(&mut self, tenant: &Tenant, order: &Order) -> Result<Payment, Failure> {
        let (tenant, order) = (tenant.clone(), order.clone());
        Ok(self
            .write(move |connection| sqlite::insert_payment(connection, &tenant, &order))
            .await?)
    }

    async fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        Ok(self.read(move |connection| sqlite::payment(connection, &tenant, &id)).await?)
    }

    /// Two at once cannot take more than there is: the table does not let them.
    async fn insert_refund(&mut self, payment: &str, amount: i64) -> Result<Refund, Failure> {
        let payment = payment.to_owned();
        Ok(self
            .write(move |connection| sqlite::insert_refund(connection, &payment, amount))
            .await?)
    }

    async fn enqueue(&mut self, message: &Message) -> Result<(), Failure> {
        let outbox: &dyn firstwrite_core::outbox::Outbox = self;
        Ok(outbox.enqueue(message).await?)
    }
}
