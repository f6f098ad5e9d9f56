//! The inbox in the same database: a row for each message that was consumed.

use firstwrite_core::{Consumed, Inbox, StoreError};
use mysql_async::Conn;

use super::MysqlStore;
use super::pipeline::{NOW, Pipeline, Value};
use crate::rows::Columns as _;

const CONSUMING: &str = "consuming a message";

impl MysqlStore {
    /// Notes in `tx` that a message is consumed. `tx` is a connection of the driver in which the consumer's
    /// transaction is open, or the [`MysqlTx`](crate::MysqlTx) of a handler; in a connection without a
    /// transaction, the note is committed at once. A message's id is 1 to 512 bytes.
    ///
    /// If the transaction is rolled back, the message was never here. Another that consumes the same message
    /// waits until this one has ended, no longer than the server lets it wait for a lock.
    pub async fn consume(
        &self,
        inbox: &Inbox,
        message_id: &str,
        tx: &mut Conn,
    ) -> Result<Consumed, StoreError> {
        let id = inbox.digest(message_id)?;
        let mut pipeline = Pipeline::reading();
        let inserted = pipeline.add(
            "INSERT INTO firstwrite_inbox (id, consumed_at, kept_until) VALUES (?, ?, ?) \
             ON DUPLICATE KEY UPDATE id = firstwrite_inbox.id",
            &[Value::Bytes(&id), Value::Sql(NOW), Value::After(inbox.span())],
        );
        // A locking look: a transaction with a snapshot would not see what it has just waited for.
        let looked = pipeline.add(
            "SELECT consumed_at FROM firstwrite_inbox WHERE id = ? FOR UPDATE",
            &[Value::Bytes(&id)],
        );
        let limit = self.pool().server.address.options.statement_timeout;
        let answers =
            pipeline.send(tx, limit).await.map_err(|error| error.cause.definite(CONSUMING))?;
        if answers[inserted].affected > 0 {
            return Ok(Consumed::First);
        }
        let row = answers[looked].row("a consumed message is not there")?;
        Ok(Consumed::Again { at: row.instant(0)? })
    }
}
