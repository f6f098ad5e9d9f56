//! The inbox in a schema: a row for each message that was consumed, written by a function that applications
//! in any language call.

use firstwrite_core::{Consumed, Inbox, StoreError, StoreErrorKind};
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::columns::At;
use super::driver_error::{corrupt, text_of};
use super::outbox::short_millis;
use super::sql::in_schema;

const CONSUME: &str =
    "SELECT firstwrite.consume($1, $2, $3::int8 * interval '1 millisecond') AS consumed_at";

const CONSUMING: &str = "consuming a message";

impl PostgresStore {
    /// Notes in `tx` that a message is consumed. `tx` is the consumer's transaction: one of
    /// `tokio-postgres`, or the [`PostgresTx`](crate::PostgresTx) of a handler; in a client without
    /// one, the note is committed at once. A message's id is 1 to 512 bytes.
    ///
    /// If `tx` is rolled back, the message was never here. Another transaction that consumes the same
    /// message waits until this one has ended. With other drivers, call the function `consume` of the
    /// schema.
    pub async fn consume(
        &self,
        inbox: &Inbox,
        message_id: &str,
        tx: &impl GenericClient,
    ) -> Result<Consumed, StoreError> {
        // Checked here too, so that a mistake does not break the caller's transaction.
        inbox.digest(message_id)?;
        let sql = in_schema(CONSUME, &self.inner.shared.server.address.options.schema);
        let given: [&(dyn ToSql + Sync); 3] =
            [&inbox.source(), &message_id, &short_millis(inbox.span())];
        let row = tx.query_one(&sql, &given).await.map_err(|error| {
            StoreError::definite(StoreErrorKind::Unavailable, CONSUMING).caused_by(text_of(&error))
        })?;
        match row.try_get::<_, Option<At>>(0) {
            Ok(None) => Ok(Consumed::First),
            Ok(Some(at)) => match at.instant() {
                Some(at) => Ok(Consumed::Again { at }),
                None => Err(corrupt("a message consumed at no time")),
            },
            Err(error) => Err(corrupt("the inbox").caused_by(error)),
        }
    }
}
