//! The statements of handlers' transactions and their parameters, for both drivers.

use firstwrite_core::encoding::encode_answers;
use firstwrite_core::{Message, RecordId, Timestamp};

use crate::postgres::columns::{At, Id, Values};
use crate::postgres::history_loss::Trust;
use crate::postgres::profiles::whole_millis;
use crate::postgres::rows::NewRow;
use crate::postgres::sql::{INTERIM, Statement, UNCERTAIN, later, statements};

/// Tries the record's lock and tells whether there is a record. Lock and look-up see what was committed
/// before the lock was tried: a rival that commits in between is caught by the primary key.
const LOOK: &str = "
    SELECT pg_try_advisory_xact_lock(uuid_hash_extended($1, 'firstwrite.records'::regclass::oid::int8)),
           EXISTS (SELECT FROM firstwrite.records WHERE id = $1),
           EXISTS (SELECT FROM firstwrite.history_losses WHERE cleared_at IS NULL),
           firstwrite.now(),
           firstwrite.incarnation() = $2
               AND EXISTS (SELECT FROM firstwrite.history WHERE writer = $3 AND sweeps >= $4)";

/// Like [`LOOK`], but fails unless the key is free: the server then refuses the statements sent after it.
const ONLY_IF_FREE: &str = "
    SELECT 1 / (pg_try_advisory_xact_lock(
                    uuid_hash_extended($1, 'firstwrite.records'::regclass::oid::int8))
                AND NOT EXISTS (SELECT FROM firstwrite.records WHERE id = $1)
                AND NOT EXISTS (SELECT FROM firstwrite.history_losses WHERE cleared_at IS NULL)
                AND firstwrite.incarnation() = $2
                AND EXISTS (SELECT FROM firstwrite.history WHERE writer = $3 AND sweeps >= $4))::int,
           firstwrite.now()";

const INSERT_RECORD: &str = "
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)";

const INSERT_MESSAGES: &str = "
    INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                     ordering_key, created_at, not_before, answers)";

statements! {
    /// The statements of handlers' transactions.
    pub(in crate::postgres) struct TxSql() {
        look: LOOK, [UUID, INT8, INT8, INT8];
        only_if_free: ONLY_IF_FREE, [UUID, INT8, INT8, INT8];
        record: insert_record(), [UUID, INT8, INT2, TEXT, BYTEA, BYTEA, BYTEA];
        record_and_message: insert_record_and_message(),
            [UUID, INT8, INT2, TEXT, BYTEA, BYTEA, BYTEA,
             TEXT, TEXT, TEXT, TEXT, BYTEA, TEXT, INT8, BYTEA];
        record_and_messages: insert_record_and_messages(),
            [UUID, INT8, INT2, TEXT, BYTEA, BYTEA, BYTEA,
             TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY,
             BYTEA_ARRAY];
        replace: replace(), [UUID, INT8, INT2, TEXT, BYTEA, BYTEA, BYTEA, INT8, TIMESTAMPTZ];
        messages: insert_messages(
            "(SELECT firstwrite.now() AS now OFFSET 0)", "$2, $3, $4, $5, $6, $7, $8, $9"),
            [UUID, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY,
             BYTEA_ARRAY];
    }
}

/// Returns the `lease_until` of a record that is written with its outcome, as SQL. A bit of the outcome's
/// first byte tells whether it is interim.
fn lease() -> String {
    format!("CASE get_byte($7, 0) & 2 WHEN 2 THEN {INTERIM} ELSE '-infinity' END")
}

/// Has no `ON CONFLICT`: a conflict must fail the transaction, whose `COMMIT` is under way.
fn insert_record() -> String {
    let lease = lease();
    format!(
        "{INSERT_RECORD}
         VALUES ($1, $2, firstwrite.now(), {lease}, $3, $4, $5, $6, $7) RETURNING created_at"
    )
}

/// Inserts the record with the only message of its handler: most have one.
fn insert_record_and_message() -> String {
    let (record, not_before) = (insert_record(), later("firstwrite.now()", "$14"));
    format!(
        "WITH sent AS ({INSERT_MESSAGES}
             VALUES ($1, $8, $9, $10, $11, $12, $13, firstwrite.now(), {not_before}, $15))
         {record}"
    )
}

fn insert_record_and_messages() -> String {
    let messages = insert_messages("clock", "$8, $9, $10, $11, $12, $13, $14, $15");
    let lease = lease();
    format!(
        "WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now), sent AS ({messages})
         {INSERT_RECORD}
         SELECT $1, $2, c.now, {lease}, $3, $4, $5, $6, $7 FROM clock c RETURNING created_at"
    )
}

fn insert_messages(clock: &str, arrays: &str) -> String {
    let not_before = later("c.now", "m.delay");
    format!(
        "{INSERT_MESSAGES}
         SELECT $1, m.tenant, m.derived_key, m.destination, m.content_type, m.payload, m.ordering_key,
                c.now, {not_before}, m.answers
         FROM {clock} c, unnest({arrays}) WITH ORDINALITY
              AS m(tenant, derived_key, destination, content_type, payload, ordering_key, delay, answers,
                   place)
         ORDER BY m.place"
    )
}

/// `$9` is the lease; null if it does not matter, infinity for a record that is uncertain.
fn replace() -> String {
    let lease = lease();
    format!(
        "UPDATE firstwrite.records
         SET fence = $2, created_at = firstwrite.now(), profile = $3, lease_until = {lease},
             tenant = $4, key = $5, fingerprint = $6, outcome = $7
         WHERE id = $1 AND fence = $8
           AND CASE WHEN $9 IS NULL THEN true
                    WHEN $9 = 'infinity' THEN lease_until >= {UNCERTAIN} AND lease_until < {INTERIM}
                    ELSE lease_until = $9 END
         RETURNING created_at"
    )
}

/// The state of a key when a transaction on it begins: the answer to [`LOOK`].
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct KeyStatus {
    pub(in crate::postgres) is_locked: bool,
    pub(in crate::postgres) has_record: bool,
    pub(in crate::postgres) trust: Trust,
    pub(in crate::postgres) now: Timestamp,
}

impl TxSql {
    /// Returns the statement that inserts a record and its messages, with its parameters.
    pub(in crate::postgres) fn insertion<'a>(
        &'a self,
        row: &'a NewRow,
        messages: &'a [Message],
    ) -> (&'a Statement, Values<'a>) {
        let record = record_values(row);
        match messages {
            [] => (&self.record, record),
            [message] => (&self.record_and_message, and_message(record, message)),
            [_, _, ..] => (&self.record_and_messages, and_messages(record, messages)),
        }
    }
}

/// Returns the first parameters of every statement that writes a record.
fn record_values(row: &NewRow) -> Values<'_> {
    Values::default()
        .and(Id(row.id))
        .and(row.fence)
        .and(row.profile)
        .and(row.tenant.as_str())
        .and(&row.key[..])
        .and(&row.fingerprint[..])
        .and(&row.outcome[..])
}

/// Returns the parameters of [`TxSql::replace`].
pub(in crate::postgres) fn replace_values(
    row: &NewRow,
    fence: i64,
    lease_until: Option<At>,
) -> Values<'_> {
    record_values(row).and(fence).and(lease_until)
}

/// Returns the parameters of [`TxSql::messages`].
pub(in crate::postgres) fn messages_values(id: RecordId, messages: &[Message]) -> Values<'_> {
    and_messages(Values::default().and(Id(id)), messages)
}

fn and_message<'a>(values: Values<'a>, message: &'a Message) -> Values<'a> {
    values
        .and(message.tenant().as_str())
        .and(message.derived_key())
        .and(message.destination())
        .and(message.payload_type())
        .and(&message.payload()[..])
        .and(message.ordering_key())
        .and(whole_millis(message.delay()))
        .and(message.answers().map(encode_answers))
}

fn and_messages<'a>(values: Values<'a>, messages: &'a [Message]) -> Values<'a> {
    values
        .and_each(messages, |message| message.tenant().as_str())
        .and_each(messages, Message::derived_key)
        .and_each(messages, Message::destination)
        .and_each(messages, Message::payload_type)
        .and_each(messages, |message| &message.payload()[..])
        .and_each(messages, Message::ordering_key)
        .and_each(messages, |message| whole_millis(message.delay()))
        .and_each(messages, |message| message.answers().map(encode_answers))
}
