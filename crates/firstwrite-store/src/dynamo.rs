//! Amazon DynamoDB: one table, in one region.
//!
//! Each move is one conditional call, and a refusal returns the existing record: so a reservation is one
//! round trip, whether it is granted or not. Look-ups are consistent reads. The SDK retries nothing. Time
//! is the host's, corrected by the service's (`clock.rs`): conditions of DynamoDB have no clock.

mod audit;
mod clock;
pub(crate) mod doctor;
mod documents;
mod driver_error;
mod inbox;
mod items;
mod link;
mod listing;
mod options;
mod outbox;
mod partition;
mod parts;
mod swap;
mod table;
mod tx;
mod write;

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Capabilities, Store, store_methods};

use crate::{Access, Migrated, OpenError};
use link::Link;
use listing::Reaping;
use options::Address;
pub use options::DynamoOptions;
use outbox::Delivering;
pub use tx::DynamoTx;
use tx::Locks;

/// A store in a DynamoDB table. Clones share it.
#[derive(Clone)]
pub struct DynamoStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    call_timeout: Duration,
    reaping: tokio::sync::Mutex<Reaping>,
    locks: Locks,
    delivering: Delivering,
}

impl DynamoStore {
    /// Opens the table that `url` names, which must be there: see [`DynamoStore::migrate`].
    ///
    /// `url` is `dynamodb:TABLE` with `region=REGION` and `endpoint=URL`. The SDK finds the credentials and
    /// whatever `url` leaves out in the environment, in profile files and in the machine's role.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(url, DynamoOptions::default()).await
    }

    /// Opens the table that `url` names, with settings.
    pub async fn connect_with(url: &str, options: DynamoOptions) -> Result<Self, OpenError> {
        Self::open(url, options, Access::Write).await
    }

    /// Opens the table that `url` names for reading. Operations that would change something return
    /// [`firstwrite_core::StoreErrorKind::Unsupported`].
    pub async fn connect_read_only(url: &str) -> Result<Self, OpenError> {
        Self::open(url, DynamoOptions::default(), Access::ReadOnly).await
    }

    /// Makes the table that `url` names if it is not there. With `shards=NUMBER`, from 1 to 256, a new table
    /// spreads its records over so many partition keys; that cannot be changed later. Several may try at once.
    pub async fn migrate(url: &str, options: DynamoOptions) -> Result<Migrated, OpenError> {
        let link = Link::new(Address::parse(url)?, options, Access::Write).await;
        table::migrate(&link).await
    }

    async fn open(url: &str, options: DynamoOptions, access: Access) -> Result<Self, OpenError> {
        let call_timeout = options.call_timeout;
        let link = Link::new(Address::parse(url)?, options, access).await;
        // The first call tells whether the table can be used, and the service's time.
        let meta = table::check(&link, table::meta(&link).await?)?;
        tracing::info!(table = %link.address, ?access, "connected");
        let (reaping, locks) = (tokio::sync::Mutex::default(), Locks::default());
        let (link, delivering) = (link.with(meta), Delivering::default());
        Ok(Self { inner: Arc::new(Inner { link, call_timeout, reaping, locks, delivering }) })
    }

    /// The SDK's client that this store uses, for reads of a handler's own. It retries nothing.
    pub fn client(&self) -> &aws_sdk_dynamodb::Client {
        &self.link().client
    }

    fn link(&self) -> &Link {
        &self.inner.link
    }
}

impl Store for DynamoStore {
    store_methods!(self;
        // Each host has its own time, within a second or so.
        capabilities() => Capabilities {
            transactions: true,
            outbox: true,
            durable: true,
            server_time: false,
            answers_within: Some(self.inner.call_timeout),
        },
        insert(draft) => swap::insert(self.link(), draft),
        swap(id, guard, change, audit) => async move {
            swap::swap(self.link(), id, guard, &change, audit).await
        },
        get(id) => listing::get(self.link(), id),
        list(query) => listing::list(self.link(), query),
        usage(after, limit) => listing::usage(self.link(), after, limit),
        reap(limit) => listing::reap(self.link(), &self.inner.reaping, limit),
        audits(id) => async move { audit::list(self.link(), &audit::of_record(id)).await },
        now() => ready(Ok(self.link().now())),
        check_history(_id) => ready(Ok(())),
        outbox() => Some(self),
        documents() => Some(self),
    );
}

/// Parses an address, for [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub(crate) fn parse_address(text: &str) {
    drop(Address::parse(text));
}

impl fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoStore")
            .field("table", &self.link().address)
            .field("clock", &self.link().clock)
            .finish_non_exhaustive()
    }
}
