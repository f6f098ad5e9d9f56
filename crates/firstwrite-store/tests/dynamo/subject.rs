//! A DynamoDB store under test: a table of its own, and a clock that a test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::outbox::{MessageQuery, protocol};
use firstwrite_core::{
    BoxError, BoxFuture, Change, Draft, Fence, OnLostAnswer, Policy, Store, StoreError, Timestamp,
};
use firstwrite_store::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType,
};
use firstwrite_store::{DynamoOptions, DynamoStore, DynamoTx};
use firstwrite_testkit::{ManualClock, Script, ScriptReport, Subject, play_held, sample};

use crate::emulator::Tables;

/// In the year 2100.
const FAR: Timestamp = Timestamp::from_millis(4_102_444_800_000);

#[derive(Debug)]
pub(crate) struct DynamoSubject {
    tables: Tables,
    pub(crate) url: String,
    clock: ManualClock,
    open: Mutex<DynamoStore>,
}

impl DynamoSubject {
    pub(crate) async fn new(tables: &Tables) -> Self {
        let (url, clock) = (tables.made().await, ManualClock::new());
        // Emulators delete what is past its time by the true time: for the tests it is always yet to come.
        clock.set(FAR);
        let open = Mutex::new(open(&url, &clock).await);
        Self { tables: tables.clone(), url, clock, open }
    }

    pub(crate) fn dynamo(&self) -> DynamoStore {
        self.open.lock().unwrap().clone()
    }

    /// A second store on the same table, as another process has it.
    pub(crate) async fn rival(&self) -> DynamoStore {
        open(&self.url, &self.clock).await
    }
}

async fn open(url: &str, clock: &ManualClock) -> DynamoStore {
    DynamoStore::connect_with(url, options(clock)).await.unwrap()
}

pub(crate) fn options(clock: &ManualClock) -> DynamoOptions {
    let mut options = DynamoOptions::default();
    options.clock = Some(Arc::new(clock.reader()));
    options
}

/// Makes the table for handlers' own items.
pub(crate) async fn make_business(tables: &Tables) {
    let key = KeySchemaElement::builder().attribute_name("name").key_type(KeyType::Hash);
    let name = AttributeDefinition::builder()
        .attribute_name("name")
        .attribute_type(ScalarAttributeType::S);
    let making = tables.admin.create_table().table_name(tables.business());
    let making = making.billing_mode(BillingMode::PayPerRequest);
    let making = making.key_schema(key.build().unwrap());
    making.attribute_definitions(name.build().unwrap()).send().await.unwrap();
}

/// Has one business row written as a handler does.
pub(crate) fn put(
    table: &str,
    tx: &mut DynamoTx,
    name: String,
    value: String,
) -> Result<(), BoxError> {
    let put = Put::builder()
        .table_name(table)
        .item("name", AttributeValue::S(name))
        .item("value", AttributeValue::S(value))
        .build()?;
    tx.put(put).map_err(Into::into)
}

impl Subject for DynamoSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.dynamo())
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(by) })
    }

    fn transact(&self, script: Script) -> BoxFuture<'_, Result<ScriptReport, StoreError>> {
        Box::pin(async move {
            let table = self.tables.business();
            play_held(
                &self.dynamo(),
                script,
                |tx, name, value| {
                    let written = put(&table, tx, name, value);
                    Box::pin(async { written })
                },
                |tx, message| {
                    let written = tx.enqueue(&message).map_err(Into::into);
                    Box::pin(async { written })
                },
            )
            .await
        })
    }

    fn row<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let asked = self.tables.admin.get_item().table_name(self.tables.business());
            let asked = asked.key("name", AttributeValue::S(name.to_owned())).consistent_read(true);
            let item = asked.send().await.unwrap().item?;
            Some(item["value"].as_s().unwrap().clone())
        })
    }

    fn message_keys(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let query = MessageQuery { limit: MessageQuery::LIMIT_MAX, ..MessageQuery::default() };
            let page = protocol::messages(&self.dynamo(), &query).await.unwrap();
            page.messages.into_iter().map(|view| view.derived_key).collect()
        })
    }

    /// Goes on with a new store; the emulator keeps the table.
    fn reopen(&self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(async move {
            let store = self.rival().await;
            *self.open.lock().unwrap() = store;
        }))
    }
}

/// A reservation under `key`.
pub(crate) fn reserved(key: &str, fence: Fence) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    sample::reserved(&request, &sample::policy(OnLostAnswer::Resend), fence)
}

/// A record under `key` that is completed at once, with a body of this many bytes.
pub(crate) fn completed(key: &str, fence: Fence, body_bytes: usize) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    let outcome = sample::outcome(201, &"x".repeat(body_bytes));
    sample::completed(&request, &Policy::default(), fence, outcome)
}

/// The owner's word that it is done.
pub(crate) fn done() -> Change {
    let retention = Policy::default().record_retention();
    Change::Complete { outcome: sample::outcome(201, "done"), retention }
}
