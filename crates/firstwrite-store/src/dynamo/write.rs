//! Writes: each move is one conditional call, which returns the existing item if the condition does not
//! hold.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, Delete, Put, ReturnValuesOnConditionCheckFailure as OnRefusal,
    TransactWriteItem, Update,
};
use firstwrite_core::StoreError;

use super::driver_error::{CONFLICT, DriverError, unavailable};
use super::items::Item;
use super::link::Link;

/// One conditional write.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put(Put),
    Update(Update),
    Delete(Delete),
}

/// Result of a step.
#[derive(Debug)]
pub(super) enum Sent {
    Done,
    /// Its condition did not hold. Holds the item found there, if any.
    Refused(Option<Item>),
}

/// Result of several steps in one transaction.
#[derive(Debug)]
pub(super) enum Transaction {
    Done,
    /// The condition of the step at this index did not hold, and nothing was written. Holds the item found there.
    Refused(usize, Option<Item>),
}

/// Names and values of an expression.
#[derive(Debug, Default)]
pub(super) struct Terms {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

/// Maximum number of attempts of a write that another transaction on the item refused.
const TRIES_MAX: u32 = 5;

impl Terms {
    /// An attribute in an expression: many of our names are words of the language.
    pub(super) fn name(&mut self, name: &str) -> String {
        let placeholder = format!("#{name}");
        self.names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    /// A value in an expression.
    pub(super) fn value(&mut self, value: AttributeValue) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    /// `name = value`, or with another operator.
    pub(super) fn is(&mut self, name: &str, operator: &str, value: AttributeValue) -> String {
        format!("{} {operator} {}", self.name(name), self.value(value))
    }

    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        Some(self.names.clone()).filter(|names| !names.is_empty())
    }

    pub(super) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        Some(self.values.clone()).filter(|values| !values.is_empty())
    }
}

impl Step {
    /// Puts `item` where `condition` holds.
    pub(super) fn put(link: &Link, item: Item, condition: String, terms: &Terms) -> Self {
        let step = Put::builder()
            .table_name(link.table())
            .set_item(Some(item))
            .condition_expression(condition)
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .build();
        Self::Put(step.expect("a table and an item are given"))
    }

    /// Changes the item under `key` where `condition` holds.
    pub(super) fn update(
        link: &Link,
        key: Item,
        change: String,
        condition: String,
        terms: &Terms,
    ) -> Self {
        let step = Update::builder()
            .table_name(link.table())
            .set_key(Some(key))
            .update_expression(change)
            .condition_expression(condition)
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .build();
        Self::Update(step.expect("a table, a key and a change are given"))
    }

    /// Deletes the item under `key` where `condition` holds.
    pub(super) fn delete(link: &Link, key: Item, condition: String, terms: &Terms) -> Self {
        let step = Delete::builder()
            .table_name(link.table())
            .set_key(Some(key))
            .condition_expression(condition)
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .build();
        Self::Delete(step.expect("a table and a key are given"))
    }

    /// Puts `item`, whether or not there is one.
    pub(super) fn place(link: &Link, item: Item) -> Self {
        let step = Put::builder().table_name(link.table()).set_item(Some(item)).build();
        Self::Put(step.expect("a table and an item are given"))
    }

    /// Changes the item under `key`, or makes it.
    pub(super) fn set(link: &Link, key: Item, change: String, terms: &Terms) -> Self {
        let step = Update::builder()
            .table_name(link.table())
            .set_key(Some(key))
            .update_expression(change)
            .set_expression_attribute_names(terms.names())
            .set_expression_attribute_values(terms.values())
            .build();
        Self::Update(step.expect("a table, a key and a change are given"))
    }

    /// Deletes the item under `key`, if there is one.
    pub(super) fn remove(link: &Link, key: Item) -> Self {
        let step = Delete::builder().table_name(link.table()).set_key(Some(key)).build();
        Self::Delete(step.expect("a table and a key are given"))
    }

    /// Converts to an item of a transaction.
    pub(super) fn in_transaction(self) -> TransactWriteItem {
        let item = TransactWriteItem::builder();
        match self {
            Self::Put(put) => item.put(put),
            Self::Update(update) => item.update(update),
            Self::Delete(delete) => item.delete(delete),
        }
        .build()
    }
}

/// Does one step by itself.
pub(super) async fn send(link: &Link, step: Step, doing: &'static str) -> Result<Sent, StoreError> {
    for tried in 1.. {
        let error = match send_once(link, step.clone()).await {
            Ok(sent) => return Ok(sent),
            Err(error) => error,
        };
        // A transaction is at work on the item: nothing was written, and it will be over in a moment.
        if error.code.as_deref() != Some(CONFLICT) || tried >= TRIES_MAX {
            return Err(error.of_write(doing));
        }
        pause(tried).await;
    }
    Err(unavailable(doing, "another transaction has the item in hand"))
}

async fn send_once(link: &Link, step: Step) -> Result<Sent, DriverError> {
    match step {
        Step::Put(step) => put(link, step).await,
        Step::Update(step) => update(link, step).await,
        Step::Delete(step) => delete(link, step).await,
    }
}

async fn put(link: &Link, step: Put) -> Result<Sent, DriverError> {
    let call = link
        .client
        .put_item()
        .table_name(step.table_name)
        .set_item(Some(step.item))
        .set_condition_expression(step.condition_expression)
        .set_expression_attribute_names(step.expression_attribute_names)
        .set_expression_attribute_values(step.expression_attribute_values)
        .set_return_values_on_condition_check_failure(
            step.return_values_on_condition_check_failure,
        );
    let Err(error) = call.send().await else { return Ok(Sent::Done) };
    if let Some(PutItemError::ConditionalCheckFailedException(refused)) = error.as_service_error() {
        return Ok(Sent::Refused(refused.item.clone()));
    }
    Err(link.error(&error))
}

async fn update(link: &Link, step: Update) -> Result<Sent, DriverError> {
    let call = link
        .client
        .update_item()
        .table_name(step.table_name)
        .set_key(Some(step.key))
        .update_expression(step.update_expression)
        .set_condition_expression(step.condition_expression)
        .set_expression_attribute_names(step.expression_attribute_names)
        .set_expression_attribute_values(step.expression_attribute_values)
        .set_return_values_on_condition_check_failure(
            step.return_values_on_condition_check_failure,
        );
    let Err(error) = call.send().await else { return Ok(Sent::Done) };
    if let Some(UpdateItemError::ConditionalCheckFailedException(refused)) =
        error.as_service_error()
    {
        return Ok(Sent::Refused(refused.item.clone()));
    }
    Err(link.error(&error))
}

async fn delete(link: &Link, step: Delete) -> Result<Sent, DriverError> {
    let call = link
        .client
        .delete_item()
        .table_name(step.table_name)
        .set_key(Some(step.key))
        .set_condition_expression(step.condition_expression)
        .set_expression_attribute_names(step.expression_attribute_names)
        .set_expression_attribute_values(step.expression_attribute_values)
        .set_return_values_on_condition_check_failure(
            step.return_values_on_condition_check_failure,
        );
    let Err(error) = call.send().await else { return Ok(Sent::Done) };
    if let Some(DeleteItemError::ConditionalCheckFailedException(refused)) =
        error.as_service_error()
    {
        return Ok(Sent::Refused(refused.item.clone()));
    }
    Err(link.error(&error))
}

/// Does all steps or none. The same `token` within ten minutes means the same transaction, which is done
/// once however often it is sent.
///
/// If the answer is lost, sends the transaction again under the token: either it was done, or it is done
/// now.
pub(super) async fn transact(
    link: &Link,
    steps: &[TransactWriteItem],
    token: &str,
    doing: &'static str,
) -> Result<Transaction, StoreError> {
    let mut is_unknown = false;
    for tried in 1.. {
        let call = link.client.transact_write_items().set_transact_items(Some(steps.to_vec()));
        let Err(error) = call.client_request_token(token).send().await else {
            return Ok(Transaction::Done);
        };
        let error = match canceled(&error) {
            Some(Canceled::Refused(place, item)) => return Ok(Transaction::Refused(place, item)),
            // Nothing was written; the conflicting transaction will be over in a moment.
            Some(Canceled::Conflict) if tried < TRIES_MAX => {
                pause(tried).await;
                continue;
            }
            Some(Canceled::Conflict) => {
                return Err(unavailable(doing, "other transactions have the same items in hand"));
            }
            Some(Canceled::Busy(code)) => return Err(unavailable(doing, code)),
            Some(Canceled::Wrong(code)) => {
                return Err(super::driver_error::unsupported(doing, code));
            }
            None => link.error(&error),
        };
        if error.is_indeterminate() && tried < TRIES_MAX {
            is_unknown = true;
            pause(tried).await;
            continue;
        }
        let error = error.of_write(doing);
        return Err(if is_unknown { error.after_lost_acknowledgement() } else { error });
    }
    Err(unavailable(doing, "other transactions have the same items in hand"))
}

/// A token for a transaction that is sent by one caller alone.
pub(super) fn new_token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Reason why a transaction was cancelled, as far as it matters.
enum Canceled {
    Refused(usize, Option<Item>),
    Conflict,
    Busy(String),
    Wrong(String),
}

/// Reads the reasons for which a transaction was cancelled; `None` if it was not.
fn canceled<R>(error: &SdkError<TransactWriteItemsError, R>) -> Option<Canceled> {
    let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) =
        error.as_service_error()
    else {
        return None;
    };
    let reasons = canceled.cancellation_reasons();
    let code_at =
        |place: usize| reasons.get(place).and_then(|reason| reason.code()).unwrap_or("None");
    let find = |wanted: &str| (0..reasons.len()).find(|place| code_at(*place) == wanted);
    if let Some(place) = find("ConditionalCheckFailed") {
        return Some(Canceled::Refused(place, reasons[place].item.clone()));
    }
    if find("TransactionConflict").is_some() {
        return Some(Canceled::Conflict);
    }
    let other = (0..reasons.len()).find(|place| code_at(*place) != "None");
    let (code, place) = other.map_or(("no reason", 0), |place| (code_at(place), place));
    let text = reasons.get(place).and_then(|reason| reason.message()).unwrap_or_default();
    let text = format!("the transaction was cancelled: {code}, item {place}: {text}");
    Some(match code {
        "ThrottlingError" | "ProvisionedThroughputExceeded" => Canceled::Busy(text),
        // Too large, of the wrong type, or whatever else will not go away by itself.
        _ => Canceled::Wrong(text),
    })
}

/// Waits longer each time, for a random time so that rivals do not retry at the same moment.
async fn pause(tried: u32) {
    let most = 10_u64 << tried.min(5);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=most))).await;
}
