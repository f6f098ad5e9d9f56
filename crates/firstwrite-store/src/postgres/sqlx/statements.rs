//! The statements of handlers' transactions, as `sqlx` sends them.

use std::sync::Arc;

use firstwrite_core::{Message, RecordId, Seen, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Error, PgConnection, Row as _};

use crate::encoding::encode_answers;
use crate::postgres::columns::At;
use crate::postgres::history;
use crate::postgres::history_loss::Trust;
use crate::postgres::options::SchemaName;
use crate::postgres::profiles::whole_millis;
use crate::postgres::rows::NewRow;
use crate::postgres::sql::spelt_out;
use crate::postgres::tx::lease_column;
use crate::postgres::tx::outgoing::Outgoing;

const LOOK: &str = "
    SELECT pg_try_advisory_xact_lock(
               uuid_hash_extended($1::text::uuid, 'firstwrite.records'::regclass::oid::int8)),
           EXISTS (SELECT FROM firstwrite.records WHERE id = $1::text::uuid),
           EXISTS (SELECT FROM firstwrite.history_losses WHERE cleared_at IS NULL),
           (extract(epoch FROM firstwrite.now()) * 1000)::int8,
           firstwrite.incarnation() = $2
               AND EXISTS (SELECT FROM firstwrite.history WHERE writer = $3 AND sweeps >= $4)";

const RECORD: &str = "
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    VALUES ($1::text::uuid, $2, firstwrite.now(),
            CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END, $3, $4, $5, $6, $7)
    RETURNING (extract(epoch FROM created_at) * 1000)::int8";

/// With the only message of a handler, as most have one.
const RECORD_AND_MESSAGE: &str = "
    WITH sent AS (
        INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                         ordering_key, created_at, not_before, answers)
        VALUES ($1::text::uuid, $8, $9, $10, $11, $12, $13, firstwrite.now(),
                CASE WHEN $14 >= AGES THEN LATEST
                     ELSE firstwrite.now() + $14 * interval '1 millisecond' END, $15))
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    VALUES ($1::text::uuid, $2, firstwrite.now(),
            CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END, $3, $4, $5, $6, $7)
    RETURNING (extract(epoch FROM created_at) * 1000)::int8";

/// Messages and record in one statement: `sqlx` waits for the answer to each.
const RECORD_AND_MESSAGES: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    sent AS (
        INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                         ordering_key, created_at, not_before, answers)
        SELECT $1::text::uuid, m.tenant, m.derived_key, m.destination, m.content_type, m.payload,
               m.ordering_key, c.now,
               CASE WHEN m.delay >= AGES THEN LATEST
                    ELSE c.now + m.delay * interval '1 millisecond' END, m.answers
        FROM clock c, unnest($8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[],
                             $13::text[], $14::int8[], $15::bytea[]) WITH ORDINALITY
            AS m(tenant, derived_key, destination, content_type, payload, ordering_key, delay, answers,
                 place)
        ORDER BY m.place)
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    SELECT $1::text::uuid, $2, c.now,
           CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END, $3, $4, $5, $6, $7
    FROM clock c
    RETURNING (extract(epoch FROM created_at) * 1000)::int8";

const MESSAGES: &str = "
    INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                     ordering_key, created_at, not_before, answers)
    SELECT $1::text::uuid, m.tenant, m.derived_key, m.destination, m.content_type, m.payload,
           m.ordering_key, c.now,
           CASE WHEN m.delay >= AGES THEN LATEST
                ELSE c.now + m.delay * interval '1 millisecond' END, m.answers
    FROM (SELECT firstwrite.now() AS now OFFSET 0) c,
         unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::int8[],
                $9::bytea[]) WITH ORDINALITY
             AS m(tenant, derived_key, destination, content_type, payload, ordering_key, delay, answers,
                  place)
    ORDER BY m.place";

/// `$9` is the lease in milliseconds; null if it does not matter, less than nothing of what is uncertain.
const REPLACE: &str = "
    UPDATE firstwrite.records
    SET fence = $2, created_at = firstwrite.now(), profile = $3,
        lease_until = CASE get_byte($7, 0) & 2 WHEN 2 THEN INTERIM ELSE '-infinity' END,
        tenant = $4, key = $5, fingerprint = $6, outcome = $7
    WHERE id = $1::text::uuid AND fence = $8
      AND CASE WHEN $9::int8 IS NULL THEN true
               WHEN $9 = -1 THEN lease_until >= UNCERTAIN AND lease_until < INTERIM
               ELSE lease_until = timestamptz 'epoch' + $9 * interval '1 millisecond' END
    RETURNING (extract(epoch FROM created_at) * 1000)::int8";

/// No row if the attempt has an outcome.
const SUPERSEDE: &str = "
    WITH put AS (
        INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until)
        SELECT $1::text::uuid, $2, c.now, c.now, c.now + interval '1 hour'
        FROM (SELECT firstwrite.now() AS now OFFSET 0) c
        ON CONFLICT (id, fence) DO NOTHING RETURNING id)
    SELECT 1 FROM put
    UNION ALL
    SELECT 1 FROM firstwrite.endings
    WHERE id = $1::text::uuid AND fence = $2 AND outcome IS NULL";

/// The statements, with the schema's name in place.
#[derive(Debug)]
pub(super) struct SqlxSql {
    look: Arc<str>,
    record: Arc<str>,
    record_and_message: Arc<str>,
    record_and_messages: Arc<str>,
    messages: Arc<str>,
    replace: Arc<str>,
    supersede: Arc<str>,
    /// True if statements may be prepared by name.
    is_persistent: bool,
}

/// Result of the first look-up of a transaction.
pub(super) struct Looked {
    pub(super) is_locked: bool,
    pub(super) stands: bool,
    pub(super) trust: Trust,
    pub(super) now: Timestamp,
}

type Asked<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl SqlxSql {
    pub(super) fn new(schema: &SchemaName, is_persistent: bool) -> Self {
        let text = |sql: &str| -> Arc<str> { spelt_out(sql, schema).into() };
        Self {
            look: text(LOOK),
            record: text(RECORD),
            record_and_message: text(RECORD_AND_MESSAGE),
            record_and_messages: text(RECORD_AND_MESSAGES),
            messages: text(MESSAGES),
            replace: text(REPLACE),
            supersede: text(SUPERSEDE),
            is_persistent,
        }
    }

    pub(super) async fn look(
        &self,
        connection: &mut PgConnection,
        id: RecordId,
        known: history::Asked,
    ) -> Result<Looked, Error> {
        let asked = self.ask(&self.look).bind(id.to_string());
        let asked = asked.bind(known.incarnation).bind(known.writer).bind(known.sweeps);
        let row = asked.fetch_one(connection).await?;
        Ok(Looked {
            is_locked: row.try_get(0)?,
            stands: row.try_get(1)?,
            trust: Trust::of(row.try_get(2)?, row.try_get(4)?),
            now: Timestamp::from_millis(row.try_get(3)?),
        })
    }

    /// Has the commit wait for a standby as long as it takes: see
    /// [`PATIENT_COMMIT`](crate::postgres::connect::PATIENT_COMMIT).
    pub(super) async fn be_patient(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let patient = "SET LOCAL statement_timeout = 0";
        sqlx::raw_sql(patient).execute(connection).await.map(drop)
    }

    /// Inserts the record and the messages.
    pub(super) async fn insert(
        &self,
        connection: &mut PgConnection,
        row: &NewRow,
        outgoing: &Outgoing,
    ) -> Result<Timestamp, Error> {
        let asked = match outgoing.messages() {
            [] => bind_record(self.ask(&self.record), row),
            [message] => {
                bind_message(bind_record(self.ask(&self.record_and_message), row), message)
            }
            messages => {
                bind_messages(bind_record(self.ask(&self.record_and_messages), row), messages)
            }
        };
        time(&asked.fetch_one(connection).await?)
    }

    /// Replaces the record that was seen, and writes the messages; returns no time if that record has
    /// moved.
    pub(super) async fn replace(
        &self,
        connection: &mut PgConnection,
        row: &NewRow,
        seen: Seen,
        outgoing: &Outgoing,
    ) -> Result<Option<Timestamp>, Error> {
        if outgoing.len() > 0 {
            let asked = self.ask(&self.messages).bind(row.id.to_string());
            bind_messages(asked, outgoing.messages()).execute(&mut *connection).await?;
        }
        let fence = seen.fence.as_u64().cast_signed();
        let lease_until = lease_column(seen).map(|lease| match lease {
            At::Instant(at) => at.as_millis(),
            At::Always | At::Never => -1,
        });
        let asked = bind_record(self.ask(&self.replace), row).bind(fence).bind(lease_until);
        let Some(written) = asked.fetch_optional(&mut *connection).await? else { return Ok(None) };
        let now = time(&written)?;
        // A completed attempt has ended already.
        if lease_until.is_none() {
            return Ok(Some(now));
        }
        let asked = self.ask(&self.supersede).bind(row.id.to_string()).bind(fence);
        Ok(asked.fetch_optional(connection).await?.map(|_ended| now))
    }

    fn ask<'q>(&self, sql: &Arc<str>) -> Asked<'q> {
        // Ours but for the schema's name, which is plain by its type.
        sqlx::query(AssertSqlSafe(Arc::clone(sql))).persistent(self.is_persistent)
    }
}

fn time(row: &PgRow) -> Result<Timestamp, Error> {
    row.try_get(0).map(Timestamp::from_millis)
}

fn bind_record<'q>(asked: Asked<'q>, row: &'q NewRow) -> Asked<'q> {
    asked
        .bind(row.id.to_string())
        .bind(row.fence)
        .bind(row.profile)
        .bind(row.tenant.as_str())
        .bind(&row.key[..])
        .bind(&row.fingerprint[..])
        .bind(&row.outcome[..])
}

fn bind_message<'q>(asked: Asked<'q>, message: &'q Message) -> Asked<'q> {
    asked
        .bind(message.tenant().as_str())
        .bind(message.derived_key())
        .bind(message.destination())
        .bind(message.payload_type())
        .bind(&message.payload()[..])
        .bind(message.ordering_key())
        .bind(whole_millis(message.delay()))
        .bind(message.answers().map(encode_answers))
}

fn bind_messages<'q>(asked: Asked<'q>, messages: &'q [Message]) -> Asked<'q> {
    let all = |of: fn(&'q Message) -> &'q str| messages.iter().map(of).collect::<Vec<_>>();
    let payloads: Vec<&[u8]> = messages.iter().map(|message| &message.payload()[..]).collect();
    let orders: Vec<Option<&str>> = messages.iter().map(Message::ordering_key).collect();
    let delays: Vec<i64> = messages.iter().map(|message| whole_millis(message.delay())).collect();
    let answers: Vec<Option<Vec<u8>>> =
        messages.iter().map(|message| message.answers().map(encode_answers)).collect();
    asked
        .bind(all(|message| message.tenant().as_str()))
        .bind(all(Message::derived_key))
        .bind(all(Message::destination))
        .bind(all(Message::payload_type))
        .bind(payloads)
        .bind(orders)
        .bind(delays)
        .bind(answers)
}
