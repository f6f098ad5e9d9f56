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

use super::driver_error::{CONFLICT, DriverError, unavailable, unsupported};
use super::items::{Item, SHARD};
use super::link::Link;

/// One write, on a condition or without one.
#[derive(Clone, Debug)]
pub(super) struct Step {
    table: String,
    action: Action,
    condition: Option<String>,
    terms: Terms,
}

#[derive(Clone, Debug)]
enum Action {
    Put(Item),
    /// A key and the update expression.
    Update(Item, String),
    Delete(Item),
}

/// Result of a step, or of several in one transaction.
#[derive(Debug)]
pub(super) enum Transaction {
    Done,
    /// The condition of the step at this index did not hold, and nothing was written. Holds the item found
    /// there, if any.
    Refused(usize, Option<Item>),
}

impl Transaction {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// Names and values of an expression.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

/// Maximum number of attempts of a write that another transaction on the item refused.
const TRIES_MAX: u32 = 5;

impl Terms {
    /// Returns the placeholder of an attribute: many of our names are reserved words.
    pub(super) fn name(&mut self, name: &str) -> String {
        let placeholder = format!("#{name}");
        self.names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    /// Returns the placeholder of a value.
    pub(super) fn value(&mut self, value: AttributeValue) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    /// Returns `name = value`, or the same with another operator.
    pub(super) fn is(&mut self, name: &str, operator: &str, value: AttributeValue) -> String {
        format!("{} {operator} {}", self.name(name), self.value(value))
    }

    /// Returns the condition that no item is there.
    pub(super) fn is_free(&mut self) -> String {
        format!("attribute_not_exists({})", self.name(SHARD))
    }

    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        Some(self.names.clone()).filter(|names| !names.is_empty())
    }

    pub(super) fn values(&self) -> Option<HashMap<String, AttributeValue>> {
        Some(self.values.clone()).filter(|values| !values.is_empty())
    }
}

/// Gives a call, or an item of a transaction, the table, the condition and the terms of a step.
macro_rules! conditional {
    ($builder:expr, $step:expr) => {
        $builder
            .table_name($step.table)
            .set_return_values_on_condition_check_failure(
                $step.condition.is_some().then_some(OnRefusal::AllOld),
            )
            .set_condition_expression($step.condition)
            .set_expression_attribute_names($step.terms.names())
            .set_expression_attribute_values($step.terms.values())
    };
}

/// Makes a call, and tells a condition that did not hold from an error.
macro_rules! send {
    ($link:expr, $call:expr, $error:ident) => {
        match $call.send().await {
            Ok(_) => Ok(Transaction::Done),
            Err(error) => match error.as_service_error() {
                Some($error::ConditionalCheckFailedException(refused)) => {
                    Ok(Transaction::Refused(0, refused.item.clone()))
                }
                _ => Err($link.error(&error)),
            },
        }
    };
}

impl Step {
    fn new(link: &Link, action: Action, condition: Option<String>, terms: &Terms) -> Self {
        Self { table: link.table().to_owned(), action, condition, terms: terms.clone() }
    }

    /// Puts `item` where `condition` holds.
    pub(super) fn put(link: &Link, item: Item, condition: String, terms: &Terms) -> Self {
        Self::new(link, Action::Put(item), Some(condition), terms)
    }

    /// Puts `item` where there is none.
    pub(super) fn put_new(link: &Link, item: Item) -> Self {
        let mut terms = Terms::default();
        let is_free = terms.is_free();
        Self::put(link, item, is_free, &terms)
    }

    /// Changes the item under `key` where `condition` holds.
    pub(super) fn update(
        link: &Link,
        key: Item,
        change: String,
        condition: String,
        terms: &Terms,
    ) -> Self {
        Self::new(link, Action::Update(key, change), Some(condition), terms)
    }

    /// Deletes the item under `key` where `condition` holds.
    pub(super) fn delete(link: &Link, key: Item, condition: String, terms: &Terms) -> Self {
        Self::new(link, Action::Delete(key), Some(condition), terms)
    }

    /// Puts `item`, whether or not there is one.
    pub(super) fn place(link: &Link, item: Item) -> Self {
        Self::new(link, Action::Put(item), None, &Terms::default())
    }

    /// Changes the item under `key`, or makes it.
    pub(super) fn set(link: &Link, key: Item, change: String, terms: &Terms) -> Self {
        Self::new(link, Action::Update(key, change), None, terms)
    }

    /// Deletes the item under `key`, if there is one.
    pub(super) fn remove(link: &Link, key: Item) -> Self {
        Self::new(link, Action::Delete(key), None, &Terms::default())
    }

    /// Converts to an item of a transaction.
    pub(super) fn in_transaction(self) -> TransactWriteItem {
        const COMPLETE: &str = "a table, a key and a change are given";
        let item = TransactWriteItem::builder();
        match self.action {
            Action::Put(put) => {
                let put = conditional!(Put::builder().set_item(Some(put)), self).build();
                item.put(put.expect(COMPLETE))
            }
            Action::Update(key, change) => {
                let update = Update::builder().set_key(Some(key)).update_expression(change);
                item.update(conditional!(update, self).build().expect(COMPLETE))
            }
            Action::Delete(key) => {
                let delete = conditional!(Delete::builder().set_key(Some(key)), self).build();
                item.delete(delete.expect(COMPLETE))
            }
        }
        .build()
    }
}

/// Does one step by itself.
pub(super) async fn send(
    link: &Link,
    step: Step,
    doing: &'static str,
) -> Result<Transaction, StoreError> {
    let mut tried = 0;
    loop {
        tried += 1;
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
}

/// Does all steps or none: one by itself, several in a transaction.
pub(super) async fn send_all(
    link: &Link,
    steps: Vec<Step>,
    doing: &'static str,
) -> Result<Transaction, StoreError> {
    match <[Step; 1]>::try_from(steps) {
        Ok([step]) => send(link, step, doing).await,
        Err(steps) => {
            let steps: Vec<_> = steps.into_iter().map(Step::in_transaction).collect();
            transact(link, &steps, &new_token(), doing).await
        }
    }
}

async fn send_once(link: &Link, step: Step) -> Result<Transaction, DriverError> {
    let client = &link.client;
    match step.action {
        Action::Put(item) => {
            let call = conditional!(client.put_item().set_item(Some(item)), step);
            send!(link, call, PutItemError)
        }
        Action::Update(key, change) => {
            let call = client.update_item().set_key(Some(key)).update_expression(change);
            send!(link, conditional!(call, step), UpdateItemError)
        }
        Action::Delete(key) => {
            let call = conditional!(client.delete_item().set_key(Some(key)), step);
            send!(link, call, DeleteItemError)
        }
    }
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
    let (mut tried, mut is_unknown) = (0, false);
    loop {
        tried += 1;
        let call = link.client.transact_write_items().set_transact_items(Some(steps.to_vec()));
        let Err(error) = call.client_request_token(token).send().await else {
            return Ok(Transaction::Done);
        };
        let error = match canceled(&error) {
            Some(CancelReason::Refused(place, item)) => {
                return Ok(Transaction::Refused(place, item));
            }
            // Nothing was written; the conflicting transaction will be over in a moment.
            Some(CancelReason::Conflict) if tried < TRIES_MAX => {
                pause(tried).await;
                continue;
            }
            Some(CancelReason::Conflict) => {
                return Err(unavailable(doing, "other transactions have the same items in hand"));
            }
            Some(CancelReason::Busy(text)) => return Err(unavailable(doing, text)),
            Some(CancelReason::Wrong(text)) => return Err(unsupported(doing, text)),
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
}

/// Returns a token for a transaction that one caller alone sends.
pub(super) fn new_token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Reason why a transaction was cancelled, as far as it matters.
enum CancelReason {
    Refused(usize, Option<Item>),
    Conflict,
    Busy(String),
    Wrong(String),
}

/// Reads the reasons for which a transaction was cancelled; `None` if it was not.
fn canceled<R>(error: &SdkError<TransactWriteItemsError, R>) -> Option<CancelReason> {
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
        return Some(CancelReason::Refused(place, reasons[place].item.clone()));
    }
    if find("TransactionConflict").is_some() {
        return Some(CancelReason::Conflict);
    }
    let other = (0..reasons.len()).find(|place| code_at(*place) != "None");
    let (code, place) = other.map_or(("no reason", 0), |place| (code_at(place), place));
    let text = reasons.get(place).and_then(|reason| reason.message()).unwrap_or_default();
    let text = format!("the transaction was cancelled: {code}, item {place}: {text}");
    Some(match code {
        "ThrottlingError" | "ProvisionedThroughputExceeded" => CancelReason::Busy(text),
        // Too large, of the wrong type, or whatever else will not go away by itself.
        _ => CancelReason::Wrong(text),
    })
}

/// Waits longer each time, for a random time so that rivals do not retry at the same moment.
async fn pause(tried: u32) {
    let most = 10_u64 << tried.min(5);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=most))).await;
}
