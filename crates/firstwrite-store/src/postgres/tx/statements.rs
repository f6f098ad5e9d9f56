//! The statements of handlers' transactions.

use firstwrite_core::{Message, StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::encoding::encode_answers;
use crate::postgres::columns::{At, Id};
use crate::postgres::driver_error::corrupt;
use crate::postgres::history_loss::Trust;
use crate::postgres::options::SchemaName;
use crate::postgres::profiles::whole_millis;
use crate::postgres::rows::{NewRow, column};
use crate::postgres::sql::Statement;

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

/// Has no `ON CONFLICT`: a conflict must fail the transaction, whose `COMMIT` is under way. A bit of the
/// outcome's first byte tells whether it is interim.
const RECORD: &str = "
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    VALUES ($1, $2, firstwrite.now(),
            CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END, $3, $4, $5, $6, $7)
    RETURNING created_at";

/// With the only message of a handler, as most have one: a statement less.
const RECORD_AND_MESSAGE: &str = "
    WITH sent AS (
        INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                         ordering_key, created_at, not_before, answers)
        VALUES ($1, $8, $9, $10, $11, $12, $13, firstwrite.now(),
                CASE WHEN $14 >= AGES THEN LATEST
                     ELSE firstwrite.now() + $14 * interval '1 millisecond' END, $15))
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    VALUES ($1, $2, firstwrite.now(),
            CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END, $3, $4, $5, $6, $7)
    RETURNING created_at";

const REPLACE: &str = "
    UPDATE firstwrite.records
    SET fence = $2, created_at = firstwrite.now(), profile = $3,
        lease_until = CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END,
        tenant = $4, key = $5, fingerprint = $6, outcome = $7
    WHERE id = $1 AND fence = $8 AND ($9::timestamptz IS NULL OR lease_until = $9)
    RETURNING created_at";

const MESSAGES: &str = "
    INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                     ordering_key, created_at, not_before, answers)
    SELECT $1, m.tenant, m.derived_key, m.destination, m.content_type, m.payload, m.ordering_key,
           c.now, CASE WHEN m.delay >= AGES THEN LATEST
                       ELSE c.now + m.delay * interval '1 millisecond' END, m.answers
    FROM (SELECT firstwrite.now() AS now OFFSET 0) c,
         unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::int8[],
                $9::bytea[]) WITH ORDINALITY
             AS m(tenant, derived_key, destination, content_type, payload, ordering_key, delay, answers,
                  place)
    ORDER BY m.place";

/// The statements of handlers' transactions, with the schema's name in place.
#[derive(Debug)]
pub(crate) struct TxSql {
    pub(super) look: Statement,
    pub(super) only_if_free: Statement,
    pub(super) record: Statement,
    pub(super) replace: Statement,
    pub(super) record_and_message: Statement,
    pub(in crate::postgres) messages: Statement,
}

/// Result of the first look-up of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) is_locked: bool,
    pub(super) stands: bool,
    pub(super) trust: Trust,
    pub(super) now: Timestamp,
}

/// The parameters of [`RECORD`], and the first of [`REPLACE`].
pub(super) struct RecordParameters<'a> {
    id: Id,
    tenant: &'a str,
    row: &'a NewRow,
}

/// The last parameters of [`RECORD_AND_MESSAGE`].
pub(super) struct MessageParameters<'a> {
    tenant: &'a str,
    derived_key: &'a str,
    destination: &'a str,
    content_type: &'a str,
    payload: &'a [u8],
    ordering_key: Option<&'a str>,
    delay: i64,
    answers: Option<Vec<u8>>,
}

impl TxSql {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        let new = |text: &str, types: &[Type]| Statement::new(schema, text, types);
        let record =
            [Type::UUID, Type::INT8, Type::INT2, Type::TEXT, Type::BYTEA, Type::BYTEA, Type::BYTEA];
        let replace = [&record[..], &[Type::INT8, Type::TIMESTAMPTZ]].concat();
        let message = [
            Type::TEXT,
            Type::TEXT,
            Type::TEXT,
            Type::TEXT,
            Type::BYTEA,
            Type::TEXT,
            Type::INT8,
            Type::BYTEA,
        ];
        let both = [&record[..], &message].concat();
        let looked = [Type::UUID, Type::INT8, Type::INT8, Type::INT8];
        let messages = [
            Type::UUID,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::BYTEA_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::BYTEA_ARRAY,
        ];
        Self {
            look: new(LOOK, &looked),
            only_if_free: new(ONLY_IF_FREE, &looked),
            record: new(RECORD, &record),
            replace: new(REPLACE, &replace),
            record_and_message: new(RECORD_AND_MESSAGE, &both),
            messages: new(MESSAGES, &messages),
        }
    }
}

impl Standing {
    pub(super) fn read(rows: &[Row]) -> Result<Self, StoreError> {
        let row = rows.first().ok_or_else(|| corrupt("a look-up answers nothing"))?;
        Ok(Self {
            is_locked: column(row, 0)?,
            stands: column(row, 1)?,
            trust: Trust::of(column(row, 2)?, column(row, 4)?),
            now: instant(row, 3)?,
        })
    }
}

pub(super) fn record_parameters(row: &NewRow) -> RecordParameters<'_> {
    RecordParameters { id: Id(row.id), tenant: row.tenant.as_str(), row }
}

impl RecordParameters<'_> {
    pub(super) fn each(&self) -> [&(dyn ToSql + Sync); 7] {
        let row = self.row;
        [&self.id, &row.fence, &row.profile, &self.tenant, &row.key, &row.fingerprint, &row.outcome]
    }

    pub(super) fn and<'a>(
        &'a self,
        message: &'a MessageParameters<'a>,
    ) -> [&'a (dyn ToSql + Sync); 15] {
        let [id, fence, profile, tenant, key, fingerprint, outcome] = self.each();
        [
            id,
            fence,
            profile,
            tenant,
            key,
            fingerprint,
            outcome,
            &message.tenant,
            &message.derived_key,
            &message.destination,
            &message.content_type,
            &message.payload,
            &message.ordering_key,
            &message.delay,
            &message.answers,
        ]
    }

    pub(super) fn with<'a>(
        &'a self,
        fence: &'a i64,
        lease_until: &'a (dyn ToSql + Sync),
    ) -> [&'a (dyn ToSql + Sync); 9] {
        let [id, new_fence, profile, tenant, key, fingerprint, outcome] = self.each();
        [id, new_fence, profile, tenant, key, fingerprint, outcome, fence, lease_until]
    }
}

impl<'a> MessageParameters<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        Self {
            tenant: message.tenant().as_str(),
            derived_key: message.derived_key(),
            destination: message.destination(),
            content_type: message.payload_type(),
            payload: &message.payload()[..],
            ordering_key: message.ordering_key(),
            delay: whole_millis(message.delay()),
            answers: message.answers().map(encode_answers),
        }
    }
}

/// The time at which a record was written.
pub(super) fn time_of(rows: &[Row]) -> Result<Timestamp, StoreError> {
    time(rows.first().ok_or_else(|| corrupt("a written record does not say when"))?)
}

pub(super) fn time(row: &Row) -> Result<Timestamp, StoreError> {
    instant(row, 0)
}

pub(super) fn instant(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    column::<At>(row, index)?.instant().ok_or_else(|| corrupt("the clock has stopped"))
}
