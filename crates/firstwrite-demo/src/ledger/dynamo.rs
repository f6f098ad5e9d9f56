//! The books in DynamoDB, in a table of their own beside the records'; a transaction holds both.
//!
//! Payments and refunds stand under their tenant, in the order of their ids, which begin with the time. What names a
//! payment's tenant stands under the payment: the provider knows no tenants.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use anyhow::Context as _;
use firstwrite_core::{BoxError, Message, Store as _, Tenant, Timestamp};
use firstwrite_store::aws_sdk_dynamodb::Client;
use firstwrite_store::aws_sdk_dynamodb::operation::create_table::CreateTableError;
use firstwrite_store::aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use firstwrite_store::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType, Select, TableStatus, TransactWriteItem, Update,
};
use firstwrite_store::{Consumed, DynamoOptions, DynamoStore, DynamoTx, Inbox};

use super::{Ledger, Payment, PaymentPage, Refund, Settled, unopened};
use crate::order::Order;
use crate::problem::Failure;

type Item = HashMap<String, AttributeValue>;

/// The store, and the table with the books.
#[derive(Clone, Debug)]
pub(crate) struct DynamoBooks {
    pub(super) store: DynamoStore,
    pub(super) table: String,
}

/// The books inside a handler's transaction.
pub(super) struct DynamoLedger<'a> {
    pub(super) tx: &'a mut DynamoTx,
    pub(super) table: &'a str,
    /// Tenant of the payment, and the amount already refunded when it was read.
    pub(super) looked_at: Option<(Tenant, i64)>,
}

/// Longest time to wait until a new table is ready.
const READY_WITHIN: Duration = Duration::from_mins(3);
const READY_ASKED_EVERY: Duration = Duration::from_millis(200);

impl DynamoBooks {
    /// Opens the store, after making the tables that are not there: a demo is ready in one command.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let migrated = DynamoStore::migrate(url, DynamoOptions::default()).await;
        migrated.map_err(|error| unopened(&error))?;
        let store = DynamoStore::connect(url).await.map_err(|error| unopened(&error))?;
        let place = url.split('?').next().unwrap_or_default();
        let table = format!("{}-demo", place.rsplit([':', '/']).next().unwrap_or_default());
        let created = tokio::time::timeout(READY_WITHIN, create(store.client(), &table));
        created.await.with_context(|| format!("the table {table} does not get ready"))??;
        Ok(Self { store, table })
    }

    /// Looks a tenant's payment up.
    pub(super) async fn payment(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        payment(self.store.client(), &self.table, tenant, id).await
    }

    /// One page of a tenant's payments; `None` if `after` is not one of its payments.
    pub(super) async fn payments(
        &self,
        tenant: &Tenant,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Option<PaymentPage>, Failure> {
        if let Some(after) = after
            && self.payment(tenant, after).await?.is_none()
        {
            return Ok(None);
        }
        let asked = || {
            let asked = self.store.client().query().table_name(&self.table).consistent_read(true);
            asked.expression_attribute_values(":holder", owner(tenant))
        };
        let (mut count, mut start) = (0, None);
        loop {
            let page = asked()
                .key_condition_expression("holder = :holder AND begins_with(id, :kind)")
                .expression_attribute_values(":kind", text("pay_"))
                .select(Select::Count)
                .set_exclusive_start_key(start);
            let page = page.send().await.map_err(failed)?;
            count += i64::from(page.count);
            start = page.last_evaluated_key;
            if start.is_none() {
                break;
            }
        }
        // One more than asked for tells whether there is a next page.
        let wanted = i32::try_from(limit).unwrap_or(i32::MAX).saturating_add(1);
        let page = asked()
            .key_condition_expression("holder = :holder AND id BETWEEN :first AND :last")
            .expression_attribute_values(":first", text("pay_"))
            // Behind every id.
            .expression_attribute_values(":last", text(after.map_or("pay_~".to_owned(), before)))
            .scan_index_forward(false)
            .limit(wanted);
        let items = page.send().await.map_err(failed)?.items.unwrap_or_default();
        let mut payments = items.iter().map(payment_of).collect::<Result<Vec<_>, _>>()?;
        let more = payments.len() > limit;
        payments.truncate(limit);
        let next = payments.last().filter(|_| more).map(|last| last.id.clone());
        Ok(Some(PaymentPage { count, payments, next }))
    }

    /// Settles a payment, if the notice of it was not seen before.
    pub(super) async fn settle(
        &self,
        inbox: &Inbox,
        settled: &Settled,
    ) -> Result<Consumed, Failure> {
        let Settled { event, payment, provider_id } = settled;
        let asked = self.store.client().get_item().table_name(&self.table).consistent_read(true);
        let asked = asked.set_key(Some(key(text(format!("payment {payment}")), "tenant")));
        let found = asked.send().await.map_err(failed)?.item;
        let mut work = Vec::new();
        // A notice about a payment that is not in these books is consumed all the same.
        if let Some(found) = found {
            let update = Update::builder()
                .table_name(&self.table)
                .set_key(Some(key(value(&found, "held_by")?.clone(), payment)))
                .update_expression("SET #status = :settled, provider_id = :id, settled_at = :at")
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":settled", text("settled"))
                .expression_attribute_values(":id", text(provider_id))
                .expression_attribute_values(":at", text(instant(self.store.now().await?)));
            let update = update.build().map_err(failed)?;
            work.push(TransactWriteItem::builder().update(update).build());
        }
        Ok(self.store.consume(inbox, event, work).await?)
    }
}

impl Ledger for DynamoLedger<'_> {
    async fn insert_payment(&mut self, tenant: &Tenant, order: &Order) -> Result<Payment, Failure> {
        let now = self.tx.now();
        let payment = Payment {
            id: new_id("pay", now),
            amount: order.amount,
            currency: order.currency.clone(),
            customer: order.customer.clone(),
            status: "pending".to_owned(),
            provider_id: None,
            refunded: 0,
            created_at: instant(now),
            settled_at: None,
        };
        let mut item = key(owner(tenant), &payment.id);
        let texts = [
            ("currency", &payment.currency),
            ("customer", &payment.customer),
            ("status", &payment.status),
            ("created_at", &payment.created_at),
        ];
        item.extend(texts.map(|(name, value)| (name.to_owned(), text(value))));
        item.insert("amount".to_owned(), number(payment.amount));
        item.insert("refunded".to_owned(), number(0));
        let mut pointer = key(text(format!("payment {}", payment.id)), "tenant");
        pointer.insert("held_by".to_owned(), owner(tenant));
        for item in [item, pointer] {
            let put = Put::builder().table_name(self.table).set_item(Some(item));
            self.tx.put(put.build().map_err(failed)?)?;
        }
        Ok(payment)
    }

    /// Reads the payment without a lock: the refund is written on condition that `refunded` has not changed.
    async fn payment_to_refund(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Payment>, Failure> {
        let payment = payment(self.tx.client(), self.table, tenant, id).await?;
        self.looked_at = payment.as_ref().map(|payment| (tenant.clone(), payment.refunded));
        Ok(payment)
    }

    async fn insert_refund(&mut self, payment: &str, amount: i64) -> Result<Refund, Failure> {
        let Some((tenant, refunded)) = self.looked_at.take() else {
            return Err(Failure::Sql("a payment is looked at before it is refunded".into()));
        };
        let update = Update::builder()
            .table_name(self.table)
            .set_key(Some(key(owner(&tenant), payment)))
            .update_expression("SET refunded = :sum")
            .condition_expression("refunded = :before")
            .expression_attribute_values(":sum", number(refunded + amount))
            .expression_attribute_values(":before", number(refunded));
        self.tx.update(update.build().map_err(failed)?)?;
        let now = self.tx.now();
        let (id, created_at) = (new_id("re", now), instant(now));
        let mut item = key(owner(&tenant), &id);
        item.insert("payment".to_owned(), text(payment));
        item.insert("amount".to_owned(), number(amount));
        item.insert("created_at".to_owned(), text(&*created_at));
        let put = Put::builder().table_name(self.table).set_item(Some(item));
        self.tx.put(put.build().map_err(failed)?)?;
        let payment = payment.to_owned();
        Ok(Refund { id, payment, amount, status: "succeeded", created_at })
    }

    async fn enqueue(&mut self, message: &Message) -> Result<(), Failure> {
        Ok(self.tx.enqueue(message)?)
    }
}

/// Makes the table of the books if it is not there, and waits for it.
async fn create(client: &Client, table: &str) -> anyhow::Result<()> {
    let attribute = |name: &str| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::S)
            .build()
    };
    let part =
        |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    loop {
        match client.describe_table().table_name(table).send().await {
            Ok(described) => {
                let status = described.table.and_then(|table| table.table_status);
                if status == Some(TableStatus::Active) {
                    return Ok(());
                }
            }
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(DescribeTableError::is_resource_not_found_exception) =>
            {
                let made = client
                    .create_table()
                    .table_name(table)
                    .attribute_definitions(attribute("holder")?)
                    .attribute_definitions(attribute("id")?)
                    .key_schema(part("holder", KeyType::Hash)?)
                    .key_schema(part("id", KeyType::Range)?)
                    .billing_mode(BillingMode::PayPerRequest);
                // Another process may create it at the same time; then it exists.
                if let Err(error) = made.send().await
                    && !error
                        .as_service_error()
                        .is_some_and(CreateTableError::is_resource_in_use_exception)
                {
                    return Err(error).with_context(|| format!("cannot make the table {table}"));
                }
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot look at the table {table}"));
            }
        }
        tokio::time::sleep(READY_ASKED_EVERY).await;
    }
}

async fn payment(
    client: &Client,
    table: &str,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<Payment>, Failure> {
    if !id.starts_with("pay_") {
        return Ok(None);
    }
    let asked = client.get_item().table_name(table).consistent_read(true);
    let asked = asked.set_key(Some(key(owner(tenant), id))).send().await;
    asked.map_err(failed)?.item.as_ref().map(payment_of).transpose()
}

fn payment_of(item: &Item) -> Result<Payment, Failure> {
    let text = |name: &str| -> Result<String, Failure> {
        let text = value(item, name)?.as_s();
        text.cloned().map_err(|_other| Failure::Sql("text is missing in the books".into()))
    };
    let number = |name: &str| -> Result<i64, Failure> {
        let digits = value(item, name)?.as_n().ok().and_then(|digits| digits.parse().ok());
        digits.ok_or_else(|| Failure::Sql("a number is missing in the books".into()))
    };
    let optional = |name: &str| item.contains_key(name).then(|| text(name)).transpose();
    Ok(Payment {
        id: text("id")?,
        amount: number("amount")?,
        currency: text("currency")?,
        customer: text("customer")?,
        status: text("status")?,
        provider_id: optional("provider_id")?,
        refunded: number("refunded")?,
        created_at: text("created_at")?,
        settled_at: optional("settled_at")?,
    })
}

fn value<'a>(item: &'a Item, name: &str) -> Result<&'a AttributeValue, Failure> {
    item.get(name).ok_or_else(|| Failure::Sql(format!("the books say no {name}").into()))
}

fn owner(tenant: &Tenant) -> AttributeValue {
    text(format!("tenant {tenant}"))
}

fn key(owner: AttributeValue, id: &str) -> Item {
    Item::from([("holder".to_owned(), owner), ("id".to_owned(), text(id))])
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The time as callers see it.
fn instant(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(at.to_system_time()).to_string()
}

/// Returns an id that sorts by time, with random digits so that a tenant cannot guess another tenant's ids.
fn new_id(kind: &str, now: Timestamp) -> String {
    // The standard library seeds its hashers at random.
    let drawn = RandomState::new().hash_one(now.as_millis());
    format!("{kind}_{:012x}{drawn:016x}", now.as_millis().max(0))
}

/// The greatest text that is less than this id: ids are digits and letters, all of one length.
fn before(id: &str) -> String {
    let mut characters: Vec<char> = id.chars().collect();
    if let Some(last) = characters.last_mut() {
        *last = char::from_u32(u32::from(*last).saturating_sub(1)).unwrap_or('/');
    }
    characters.into_iter().collect::<String>() + "~"
}

fn failed(error: impl Into<BoxError>) -> Failure {
    Failure::Sql(error.into())
}
