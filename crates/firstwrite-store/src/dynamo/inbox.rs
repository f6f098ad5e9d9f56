//! The inbox in the same table: an item for each consumed message, which the service deletes when it
//! expires.

use aws_sdk_dynamodb::types::TransactWriteItem;
use firstwrite_core::{Consumed, Inbox, StoreError};

use super::DynamoStore;
use super::driver_error::{corrupt, unavailable, unsupported};
use super::items::{EXPIRES, expires, instant, key, number, set};
use super::write::{self, Step, Terms, Transaction};

const CONSUMED_AT: &str = "consumed_at";
const KEPT_UNTIL: &str = "kept_until";

/// The service takes 100 in one transaction; one is the note.
const STEPS_MAX: usize = 99;

const CONSUMING: &str = "consuming a message";

impl DynamoStore {
    /// Runs `work`, the effects of a message from another system, if the message was not consumed before:
    /// all of its writes and the note of consumption in one transaction, or nothing. At most 99 writes; a
    /// message's id is 1 to 512 bytes.
    ///
    /// If a condition of the work does not hold, nothing is written, and the message can be delivered
    /// again.
    pub async fn consume(
        &self,
        inbox: &Inbox,
        message_id: &str,
        work: Vec<TransactWriteItem>,
    ) -> Result<Consumed, StoreError> {
        let link = self.link();
        link.writable(CONSUMING)?;
        let id = inbox.digest(message_id)?;
        if work.len() > STEPS_MAX {
            return Err(unsupported(
                CONSUMING,
                "a consumer writes at most 99 items in one transaction",
            ));
        }
        let now = link.now();
        let kept_until = inbox.kept_until(now);
        let mut item = key(format!("i#{:032x}", u128::from_be_bytes(id)), &id);
        let times = [(CONSUMED_AT, now), (KEPT_UNTIL, kept_until)];
        set(&mut item, times.map(|(name, at)| (name, number(at.as_millis()))));
        set(&mut item, expires(kept_until).map(|at| (EXPIRES, number(at))));
        let mut terms = Terms::default();
        let is_new = terms.is_free();
        let is_forgotten = terms.is(KEPT_UNTIL, "<=", number(now.as_millis()));
        let noted = Step::put(link, item, format!("{is_new} OR {is_forgotten}"), &terms);
        let mut steps = vec![noted.in_transaction()];
        steps.extend(work);
        match write::transact(link, &steps, &write::new_token(), CONSUMING).await? {
            Transaction::Done => Ok(Consumed::First),
            Transaction::Refused(0, Some(item)) => {
                Ok(Consumed::Again { at: instant(&item, CONSUMED_AT)? })
            }
            Transaction::Refused(0, None) => Err(corrupt("a consumed message does not say when")),
            Transaction::Refused(place, _) => {
                let why =
                    format!("the condition of the consumer's write number {place} did not hold");
                Err(unavailable(CONSUMING, why))
            }
        }
    }
}
