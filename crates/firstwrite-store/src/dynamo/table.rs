//! Creates the table, and tells it apart from another version's.

use std::time::Duration;

use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, KeyType,
    Projection, ProjectionType, ScalarAttributeType, TableDescription, TableStatus,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use firstwrite_core::StoreError;

use super::driver_error::{DriverError, NOT_FOUND, corrupt};
use super::items::{
    DUE_AT, EXPIRES, ID, Item, OPEN, SHARD, STATE, Shards, integer, key, number, set,
};
use super::link::Link;
use super::write::{self, Step};
use crate::{Migrated, OpenError};

/// Metadata that a table holds about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    version: i64,
    pub(super) shards: Shards,
}

/// The version that this build reads and writes.
const VERSION: i64 = 1;

/// The index of records that are reserved or uncertain.
pub(super) const OPEN_INDEX: &str = "open";

const VERSION_NAME: &str = "version";
const SHARDS_NAME: &str = "shards";

/// Time limit for a new table to become ready.
const READY_WITHIN: Duration = Duration::from_mins(3);
const READY_ASKED_EVERY: Duration = Duration::from_millis(300);

fn meta_key() -> Item {
    key("meta", b"firstwrite")
}

/// Reads the table's metadata; `None` if there is no table, or nothing of ours in it.
pub(super) async fn meta(link: &Link) -> Result<Option<Meta>, OpenError> {
    let asked = link.client.get_item().table_name(link.table()).set_key(Some(meta_key()));
    let item = match asked.consistent_read(true).send().await {
        Ok(answer) => answer.item,
        Err(error) => match link.error(&error) {
            error if error.code.as_deref() == Some(NOT_FOUND) => None,
            error => return Err(unreachable(link, &error)),
        },
    };
    item.as_ref().map(read).transpose().map_err(|error| {
        OpenError::new(format!("the table of {} is not one of firstwrite's", link.address))
            .caused_by(error)
    })
}

fn read(item: &Item) -> Result<Meta, StoreError> {
    let shards = u16::try_from(integer(item, SHARDS_NAME)?).ok();
    let shards = shards.filter(|count| (1..=256).contains(count));
    let shards = shards.ok_or_else(|| corrupt("an impossible number of shards"))?;
    Ok(Meta { version: integer(item, VERSION_NAME)?, shards: Shards(shards) })
}

/// Refuses a table that this build cannot use.
pub(super) fn check(link: &Link, meta: Option<Meta>) -> Result<Meta, OpenError> {
    let address = &link.address;
    match meta {
        None => Err(OpenError::missing(&format!("there is no table for {address}"), address)),
        Some(meta) if meta.version > VERSION => Err(OpenError::new(format!(
            "the table of {address} has version {} and this build knows {VERSION}; use a newer build",
            meta.version
        ))),
        Some(meta) => Ok(meta),
    }
}

/// Makes the table if it is not there. Several may try at once.
pub(super) async fn migrate(link: &Link) -> Result<Migrated, OpenError> {
    let from = match meta(link).await? {
        Some(meta) => check(link, Some(meta))?.version,
        None => 0,
    };
    if describe(link).await?.is_none() {
        create(link).await?;
    }
    wait_until_ready(link).await?;
    expire(link).await?;
    if from == 0 {
        put_meta(link).await?;
    }
    Ok(Migrated { from, to: VERSION })
}

/// Returns the service's description of the table; `None` if there is none.
pub(super) async fn describe(link: &Link) -> Result<Option<TableDescription>, OpenError> {
    match link.client.describe_table().table_name(link.table()).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error) => match error.as_service_error() {
            Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
            _ => Err(unreachable(link, &link.error(&error))),
        },
    }
}

async fn create(link: &Link) -> Result<(), OpenError> {
    let attribute = |name: &str, kind: ScalarAttributeType| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()
    };
    let key = |name: &str, kind: KeyType| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
    };
    let projection = Projection::builder()
        .projection_type(ProjectionType::Include)
        .non_key_attributes(STATE)
        .non_key_attributes(DUE_AT)
        .build();
    let complete = "names and kinds are given";
    let index = GlobalSecondaryIndex::builder()
        .index_name(OPEN_INDEX)
        .key_schema(key(OPEN, KeyType::Hash).expect(complete))
        .key_schema(key(ID, KeyType::Range).expect(complete))
        .projection(projection)
        .build()
        .expect(complete);
    let made = link
        .client
        .create_table()
        .table_name(link.table())
        .attribute_definitions(attribute(SHARD, ScalarAttributeType::S).expect(complete))
        .attribute_definitions(attribute(ID, ScalarAttributeType::B).expect(complete))
        .attribute_definitions(attribute(OPEN, ScalarAttributeType::S).expect(complete))
        .key_schema(key(SHARD, KeyType::Hash).expect(complete))
        .key_schema(key(ID, KeyType::Range).expect(complete))
        .global_secondary_indexes(index)
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await;
    match made {
        Ok(_) => Ok(()),
        Err(error) => match link.error(&error) {
            // Another process creates it at the same time.
            error if error.code.as_deref() == Some("ResourceInUseException") => Ok(()),
            error => Err(unreachable(link, &error)),
        },
    }
}

async fn wait_until_ready(link: &Link) -> Result<(), OpenError> {
    let ready = async {
        loop {
            if let Some(table) = describe(link).await?
                && table.table_status == Some(TableStatus::Active)
            {
                let indexes = table.global_secondary_indexes();
                let index = indexes.iter().find(|index| index.index_name() == Some(OPEN_INDEX));
                match index.map(|index| index.index_status.clone()) {
                    Some(None | Some(IndexStatus::Active)) => return Ok(()),
                    Some(Some(_)) => {}
                    None => {
                        return Err(OpenError::new(format!(
                            "the table of {} has no index `{OPEN_INDEX}`: it is not one of \
                             firstwrite's; name the table that holds your records (a new one knows no \
                             key, and every retry of earlier requests runs again)",
                            link.address
                        )));
                    }
                }
            }
            tokio::time::sleep(READY_ASKED_EVERY).await;
        }
    };
    let late = || OpenError::new(format!("the table of {} does not get ready", link.address));
    tokio::time::timeout(READY_WITHIN, ready).await.map_err(|_elapsed| late())?
}

/// Makes the service delete expired items.
async fn expire(link: &Link) -> Result<(), OpenError> {
    if is_expiring(link).await? {
        return Ok(());
    }
    let setting = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES).build();
    let setting = setting.expect("both settings are given");
    let set = link.client.update_time_to_live().table_name(link.table());
    match set.time_to_live_specification(setting).send().await {
        Ok(_) => Ok(()),
        // Another process does it at the same time, and it is allowed once an hour.
        Err(_) if is_expiring(link).await? => Ok(()),
        Err(error) => Err(unreachable(link, &link.error(&error))),
    }
}

/// Returns true if the service deletes expired items (TTL).
pub(super) async fn is_expiring(link: &Link) -> Result<bool, OpenError> {
    let asked = link.client.describe_time_to_live().table_name(link.table()).send().await;
    let answer = asked.map_err(|error| unreachable(link, &link.error(&error)))?;
    Ok(answer.time_to_live_description.is_some_and(|described| {
        matches!(
            described.time_to_live_status,
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
        ) && described.attribute_name.as_deref() == Some(EXPIRES)
    }))
}

async fn put_meta(link: &Link) -> Result<(), OpenError> {
    let mut item = meta_key();
    let shards = number(link.address.shards.into());
    set(&mut item, [(VERSION_NAME, number(VERSION)), (SHARDS_NAME, shards)]);
    // If it is refused, another process was first and has decided.
    let sent = write::send(link, Step::put_new(link, item), "marking the table").await;
    sent.map(drop).map_err(|error| OpenError::new(error.to_string()))
}

pub(super) fn unreachable(link: &Link, error: &DriverError) -> OpenError {
    OpenError::new(format!(
        "DynamoDB cannot be used at {}: {error}; check the region, the credentials of the \
         environment and their rights",
        link.address
    ))
}
