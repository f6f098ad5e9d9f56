//! Access to one table: the SDK's client, without retries of its own.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use firstwrite_core::corrected_clock::CorrectedClock;
use firstwrite_core::{RecordId, StoreError, Timestamp};

use super::clock::{Listener, corrected};
use super::driver_error::{DriverError, corrupt, unavailable, unsupported};
use super::items::{Item, Shards};
use super::options::{Address, DynamoOptions};
use super::table::Meta;
use crate::Access;

/// Maximum number of items that the service reads in one call.
const BATCH_MAX: usize = 100;

/// A client and the table it works with.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) address: Address,
    pub(super) shards: Shards,
    pub(super) clock: Arc<CorrectedClock>,
    access: Access,
}

impl Link {
    /// Makes a client for `address`. Sends nothing yet, except to the provider of credentials.
    pub(super) async fn new(address: Address, options: DynamoOptions, access: Access) -> Self {
        let clock = corrected(options.clock.clone());
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(options.connect_for)
            .operation_timeout(options.call_timeout)
            .build();
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            // A repetition must carry the fence and be told apart from the first: that is ours to do.
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(region) = &address.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &address.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if address.is_local() {
            // Emulators ask for credentials and take any; real ones are not shown to them.
            loader = loader.credentials_provider(Credentials::new(
                "emulator", "emulator", None, None, "emulator",
            ));
            if address.region.is_none() {
                loader = loader.region(Region::from_static("us-east-1"));
            }
        }
        let shared = loader.load().await;
        let config = aws_sdk_dynamodb::config::Builder::from(&shared)
            .interceptor(Listener(Arc::clone(&clock)))
            .build();
        let shards = Shards(address.shards);
        Self { client: Client::from_conf(config), address, shards, clock, access }
    }

    /// Returns the same link with the table's number of shards, once it is known.
    pub(super) fn with(self, meta: Meta) -> Self {
        Self { shards: meta.shards, ..self }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn table(&self) -> &str {
        &self.address.table
    }

    /// Refuses changes if the store was opened for reading.
    pub(super) fn writable(&self, doing: &'static str) -> Result<(), StoreError> {
        match self.access {
            Access::Write => Ok(()),
            Access::ReadOnly => Err(unsupported(doing, "the store was opened read-only")),
        }
    }

    /// Reads the item under `id`, as it is at this moment.
    pub(super) async fn item(
        &self,
        id: RecordId,
        doing: &'static str,
    ) -> Result<Option<Item>, StoreError> {
        self.item_at(self.shards.key(id), doing).await
    }

    /// Reads the item under a primary key, as it is at this moment.
    pub(super) async fn item_at(
        &self,
        key: Item,
        doing: &'static str,
    ) -> Result<Option<Item>, StoreError> {
        let asked = self.client.get_item().table_name(self.table()).set_key(Some(key));
        let answer = asked.consistent_read(true).send().await;
        let answer = answer.map_err(|error| self.error(&error).of_read(doing))?;
        Ok(answer.item)
    }

    /// Reads the items under these primary keys, as they are at this moment, in any order; leaves out keys
    /// without an item.
    pub(super) async fn items_at(
        &self,
        keys: &[Item],
        doing: &'static str,
    ) -> Result<Vec<Item>, StoreError> {
        let mut read = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(BATCH_MAX) {
            let mut keys = chunk.to_vec();
            for tried in 0.. {
                if keys.is_empty() {
                    break;
                }
                if tried > BATCH_MAX {
                    return Err(unavailable(doing, "the service leaves items out of its answers"));
                }
                let asked = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
                let asked = asked.build().map_err(|_no_keys| corrupt("keys are missing"))?;
                let asked = HashMap::from([(self.table().to_owned(), asked)]);
                let answer = self.client.batch_get_item().set_request_items(Some(asked)).send();
                let answer = answer.await;
                let answer = answer.map_err(|error| self.error(&error).of_read(doing))?;
                for (_, items) in answer.responses.unwrap_or_default() {
                    read.extend(items);
                }
                // What did not fit into the answer is asked for again.
                let left = answer.unprocessed_keys.unwrap_or_default().remove(self.table());
                keys = left.map(|left| left.keys).unwrap_or_default();
            }
        }
        Ok(read)
    }

    /// Converts the error of a call, with the next step where there is one.
    pub(super) fn error<E, R>(&self, error: &SdkError<E, R>) -> DriverError
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: fmt::Debug + 'static,
    {
        DriverError::of(error).at(&self.address)
    }
}
