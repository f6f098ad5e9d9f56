//! The demo's books: payments and refunds, in the same store as the records, whichever that is.
//!
//! A [`Job`] is what a request does to the books, written once. [`Work`] does it in one transaction
//! with the request's record, as the store at hand does that.

mod apart;
mod dynamo;
mod mysql;
mod postgres;
mod sqlite;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anyhow::anyhow;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firstwrite::{Atomic, Attempt, ExtractorError, IdempotencyLayer, Transaction};
use firstwrite_core::{Interim, Message, Mode, Store, Tenant};
use firstwrite_store::{Consumed, DynamoStore, Inbox, MysqlStore, PostgresStore, SqliteStore};
use serde::Serialize;

use crate::StoreAddress;
use crate::order::Order;
use crate::problem::Failure;
use apart::BooksApart;
use dynamo::{DynamoBooks, DynamoLedger};
use mysql::MysqlBooks;

/// A payment as callers see it.
#[derive(Debug, Serialize)]
pub(crate) struct Payment {
    pub(crate) id: String,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) customer: String,
    /// `pending`, and `settled` once the provider has said so.
    pub(crate) status: String,
    /// The provider's id for it, once it is settled.
    pub(crate) provider_id: Option<String>,
    pub(crate) refunded: i64,
    pub(crate) created_at: String,
    pub(crate) settled_at: Option<String>,
}

/// The provider's notice that it has made a payment.
#[derive(Debug)]
pub(crate) struct Settled {
    /// The provider's id for this notice; the same for every repetition.
    pub(crate) event: String,
    /// Our payment's id.
    pub(crate) payment: String,
    /// The provider's id for the payment.
    pub(crate) provider_id: String,
}

/// A refund as callers see it.
#[derive(Debug, Serialize)]
pub(crate) struct Refund {
    pub(crate) id: String,
    pub(crate) payment: String,
    pub(crate) amount: i64,
    pub(crate) status: &'static str,
    pub(crate) created_at: String,
}

/// A page of one tenant's payments, newest first.
#[derive(Debug, Serialize)]
pub(crate) struct PaymentPage {
    /// Number of all payments of the tenant.
    pub(crate) count: i64,
    pub(crate) payments: Vec<Payment>,
    /// The cursor of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// The store with the books in it.
#[derive(Clone, Debug)]
pub(crate) enum Books {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    Mysql(MysqlBooks),
    Dynamo(DynamoBooks),
    /// Records that share no transaction with the books.
    Apart(BooksApart),
}

/// The books inside a transaction.
///
/// On SQLite nothing here waits, because the store runs a handler's work on the thread that writes.
pub(crate) trait Ledger {
    /// Writes a payment.
    fn insert_payment(
        &mut self,
        tenant: &Tenant,
        order: &Order,
    ) -> impl Future<Output = Result<Payment, Failure>>;

    /// Looks a tenant's payment up, and keeps others from refunding it meanwhile.
    fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> impl Future<Output = Result<Option<Payment>, Failure>>;

    /// Writes a refund of a payment that has enough left.
    fn insert_refund(
        &mut self,
        payment: &str,
        amount: i64,
    ) -> impl Future<Output = Result<Refund, Failure>>;

    /// Writes a message that is delivered if and only if all this is committed.
    fn enqueue(&mut self, message: &Message) -> impl Future<Output = Result<(), Failure>>;
}

/// Work of a request on the books.
pub(crate) trait Job: Send + 'static {
    /// Does the work, and returns the answer.
    fn run<L: Ledger>(
        self,
        ledger: &mut L,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<axum::http::Response<Bytes>, Failure>>;
}

/// The right to do a job, in one transaction with the request's record where the store has them: an extractor.
pub(crate) enum Work {
    Sqlite(Atomic<SqliteStore>),
    Postgres(Box<Transaction<PostgresStore>>),
    Mysql(Box<Transaction<MysqlStore>>),
    /// With the table of the books.
    Dynamo(Box<Transaction<DynamoStore>>, String),
    Apart(SqliteStore, Box<Attempt>),
}

impl Books {
    /// Opens the store and makes the tables that are not there yet.
    pub(crate) async fn open(url: &StoreAddress) -> anyhow::Result<Self> {
        match url {
            StoreAddress::Sqlite(path) => {
                let store = SqliteStore::open_or_create(path);
                let store = store.map_err(|error| unopened(&error))?;
                sqlite::create(&store).await?;
                Ok(Self::Sqlite(store))
            }
            StoreAddress::Postgres(address) => {
                let store = postgres::open(address).await.map_err(|error| unopened(&error))?;
                postgres::create(&store).await?;
                Ok(Self::Postgres(store))
            }
            StoreAddress::Mysql(address) => Ok(Self::Mysql(MysqlBooks::open(address).await?)),
            StoreAddress::Dynamodb(address) => Ok(Self::Dynamo(DynamoBooks::open(address).await?)),
            StoreAddress::Redis(address) => Ok(Self::Apart(BooksApart::open(address).await?)),
        }
    }

    /// A layer whose transactions [`Work`] finds.
    pub(crate) fn layer(&self) -> IdempotencyLayer {
        match self {
            Self::Sqlite(store) => IdempotencyLayer::atomic(store.clone()),
            Self::Postgres(store) => IdempotencyLayer::atomic(store.clone()),
            Self::Mysql(books) => IdempotencyLayer::atomic(books.store.clone()),
            Self::Dynamo(books) => IdempotencyLayer::atomic(books.store.clone()),
            Self::Apart(books) => IdempotencyLayer::new(Arc::clone(&books.records)),
        }
    }

    /// Returns the mode in which handlers run on these books.
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) | Self::Mysql(_) | Self::Dynamo(_) => Mode::Atomic,
            Self::Apart(_) => Mode::Reserved,
        }
    }

    /// Returns the store that holds the messages.
    pub(crate) fn messages(&self) -> Arc<dyn Store> {
        match self {
            Self::Apart(books) => Arc::new(books.books.clone()),
            Self::Sqlite(_) | Self::Postgres(_) | Self::Mysql(_) | Self::Dynamo(_) => self.store(),
        }
    }

    /// Returns the store that holds the records, for its worker.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Mysql(books) => Arc::new(books.store.clone()),
            Self::Dynamo(books) => Arc::new(books.store.clone()),
            Self::Apart(books) => Arc::clone(&books.records),
        }
    }

    /// Looks a tenant's payment up.
    pub(crate) async fn payment(
        &self,
        tenant: Tenant,
        id: String,
    ) -> Result<Option<Payment>, Failure> {
        Ok(match self {
            Self::Sqlite(store) => {
                store.read(move |connection| sqlite::payment(connection, &tenant, &id)).await?
            }
            Self::Postgres(store) => postgres::payment(store, &tenant, &id).await?,
            Self::Mysql(books) => books.payment(&tenant, &id).await?,
            Self::Dynamo(books) => books.payment(&tenant, &id).await?,
            Self::Apart(apart) => {
                let look = move |connection: &_| sqlite::payment(connection, &tenant, &id);
                apart.books.read(look).await?
            }
        })
    }

    /// One page of a tenant's payments; `None` if `after` is not one of its payments.
    pub(crate) async fn payments(
        &self,
        tenant: Tenant,
        limit: usize,
        after: Option<String>,
    ) -> Result<Option<PaymentPage>, Failure> {
        Ok(match self {
            Self::Sqlite(store) => {
                let page = move |connection: &_| {
                    sqlite::payments(connection, &tenant, limit, after.as_deref())
                };
                store.read(page).await?
            }
            Self::Postgres(store) => {
                postgres::payments(store, &tenant, limit, after.as_deref()).await?
            }
            Self::Mysql(books) => books.payments(&tenant, limit, after.as_deref()).await?,
            Self::Dynamo(books) => books.payments(&tenant, limit, after.as_deref()).await?,
            Self::Apart(apart) => {
                let page = move |connection: &_| {
                    sqlite::payments(connection, &tenant, limit, after.as_deref())
                };
                apart.books.read(page).await?
            }
        })
    }

    /// Settles a payment in one transaction with the notice that says so, which counts once.
    pub(crate) async fn settle(
        &self,
        inbox: &Inbox,
        settled: Settled,
    ) -> Result<Consumed, Failure> {
        match self {
            Self::Sqlite(store) => {
                let inbox = inbox.clone();
                let settle = move |connection: &_| sqlite::settle(connection, &inbox, &settled);
                Ok(store.write(settle).await?)
            }
            Self::Postgres(store) => postgres::settle(store, inbox, &settled).await,
            Self::Mysql(books) => books.settle(inbox, &settled).await,
            Self::Dynamo(books) => books.settle(inbox, &settled).await,
            Self::Apart(apart) => {
                let inbox = inbox.clone();
                let settle = move |connection: &_| sqlite::settle(connection, &inbox, &settled);
                Ok(apart.books.write(settle).await?)
            }
        }
    }

    /// Finishes what waits and lets go of the store.
    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
            Self::Mysql(books) => books.close().await,
            Self::Dynamo(books) => drop(books),
            Self::Apart(books) => books.close().await,
        }
    }
}

impl Work {
    /// Does `job`; what it wrote is committed with its answer, as the answer's status says.
    pub(crate) async fn run(self, job: impl Job) -> Result<Response, Failure> {
        let answered = match self {
            Self::Sqlite(atomic) => {
                atomic.run(move |tx, attempt| at_once(job.run(tx, attempt))).await?
            }
            Self::Postgres(mut tx) => {
                let attempt = tx.attempt().clone();
                let answer = job.run(&mut **tx, &attempt).await?;
                tx.commit(answer).await
            }
            Self::Mysql(mut tx) => {
                let attempt = tx.attempt().clone();
                let answer = job.run(&mut **tx, &attempt).await?;
                tx.commit(answer).await
            }
            Self::Dynamo(mut tx, table) => {
                let attempt = tx.attempt().clone();
                let mut ledger = DynamoLedger { tx: &mut tx, table: &table, looked_at: None };
                let answer = job.run(&mut ledger, &attempt).await?;
                tx.commit(answer).await
            }
            Self::Apart(mut books, attempt) => {
                let mut answer = job.run(&mut books, &attempt).await?;
                // No message can replace an answer in another store: what is said now stands.
                answer.extensions_mut().remove::<Interim>();
                return Ok(answer.map(axum::body::Body::from));
            }
        };
        Ok(answered.into_response())
    }
}

impl FromRequestParts<Books> for Work {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, books: &Books) -> Result<Self, ExtractorError> {
        match books {
            Books::Sqlite(_) => Atomic::from_request_parts(parts, books).await.map(Self::Sqlite),
            Books::Postgres(_) => {
                let tx = Transaction::from_request_parts(parts, books).await?;
                Ok(Self::Postgres(Box::new(tx)))
            }
            Books::Mysql(_) => {
                let tx = Transaction::from_request_parts(parts, books).await?;
                Ok(Self::Mysql(Box::new(tx)))
            }
            Books::Dynamo(books_there) => {
                let tx = Transaction::from_request_parts(parts, books).await?;
                Ok(Self::Dynamo(Box::new(tx), books_there.table.clone()))
            }
            Books::Apart(apart) => {
                let attempt = Attempt::from_request_parts(parts, books).await?;
                Ok(Self::Apart(apart.books.clone(), Box::new(attempt)))
            }
        }
    }
}

/// The error of a store that does not open. The cause's text names the place, holds its own causes and ends with
/// the next step.
fn unopened(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow!("cannot open the store: {error}")
}

/// Returns the output of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready,
        Poll::Pending => panic!("a job on an SQLite ledger waits for nothing but the ledger"),
    }
}
