//! The statements of the store. They name the default schema, `firstwrite`; `in_schema` puts another one in its place.

use super::documents::DocumentsSql;
use super::history_loss::HistorySql;
use super::outbox::OutboxSql;
use super::profiles::ProfilesSql;
use super::sql::{AGES, INTERIM, LATEST, UNCERTAIN, later, statements};
use super::tx::statements::TxSql;

statements! {
    /// Every statement of the store.
    pub(super) struct Sql(
        documents: DocumentsSql, history: HistorySql, outbox: OutboxSql, profiles: ProfilesSql, tx: TxSql
    ) {
        insert: insert(),
            [UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY,
             INT8, INT8_ARRAY, INT8, INT8];
        complete: complete(), [UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY];
        find: find(), [UUID_ARRAY];

        lock: "SELECT FROM firstwrite.records WHERE id = $1 FOR UPDATE", [UUID];
        has_ending: "SELECT FROM firstwrite.endings WHERE id = $1 AND fence = $2", [UUID, INT8];
        supersede: "SELECT WHERE firstwrite.end_attempt($1, $2)", [UUID, INT8];
        end: "INSERT INTO firstwrite.endings AS e
                  (id, fence, ended_at, retained_until, kept_until, outcome)
              VALUES ($1, $2, $3, $4, $5, $6)
              ON CONFLICT (id, fence) DO UPDATE
                  SET ended_at = $3, retained_until = $4, kept_until = $5, outcome = $6
                  WHERE e.outcome IS NULL OR $7
              RETURNING id",
            [UUID, INT8, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, BYTEA, BOOL];
        unend: "UPDATE firstwrite.endings SET outcome = NULL, kept_until = $3
                WHERE id = $1 AND fence = $2",
            [UUID, INT8, TIMESTAMPTZ];
        lease: "UPDATE firstwrite.records SET lease_until = $2 WHERE id = $1", [UUID, TIMESTAMPTZ];
        reopen: "UPDATE firstwrite.records SET lease_until = $2, outcome = '' WHERE id = $1",
            [UUID, TIMESTAMPTZ];
        replace: format!("UPDATE firstwrite.records
                  SET fence = $2, created_at = $3, profile = $5, tenant = $6, key = $7,
                      fingerprint = $8, outcome = $9, lease_until = {}
                  WHERE id = $1", lease("$3", "$4")),
            [UUID, INT8, TIMESTAMPTZ, INT8, INT2, TEXT, BYTEA, BYTEA, BYTEA];
        remove: "DELETE FROM firstwrite.records WHERE id = $1", [UUID];
        put_audit: "INSERT INTO firstwrite.audit (id, at, actor, action, reason)
                    VALUES ($1, $2, $3, $4, $5)",
            [UUID, TIMESTAMPTZ, TEXT, TEXT, TEXT];

        now: "SELECT firstwrite.now()", [];
        audits: "SELECT at, actor, action, reason FROM firstwrite.audit WHERE id = $1 ORDER BY entry",
            [UUID];
        list_all: list_all(), [UUID, INT8, TEXT, TEXT, INT8];
        list_uncertain: list_uncertain(), [UUID, TEXT, INT8];
        looked_at_end: "SELECT id FROM firstwrite.records WHERE id >= $1 ORDER BY id OFFSET $2 LIMIT 2",
            [UUID, INT8];

        usage: USAGE, [UUID, INT8];

        sweep_clock: SWEEP_CLOCK, [];
        lapsed: lapsed(), [TIMESTAMPTZ, TEXT, INT8];
        extent: EXTENT, [];
        reap_records: reap_records(), [TID, TID, TIMESTAMPTZ, INT8];
        reap_endings: reap_endings(), [TID, TID, TIMESTAMPTZ, INT8];
    }
}

/// Columns of a record and of the ending of its attempt: see [`super::rows::LookupResult`].
const COLUMNS: &str =
    "r.id, r.fence, r.created_at, r.lease_until, r.profile, r.tenant, r.key, r.fingerprint,
     r.outcome, e.outcome AS ending, e.retained_until, e.kept_until";

/// The last columns of a look-up by other means than ids, and the clock that they read.
const LISTED: &str = "c.now, r.id AS wanted, false AS history_lost
     FROM (SELECT firstwrite.now() AS now OFFSET 0) c";

/// Returns the `lease_until` of a record that is written `at`, as SQL: see [`super::rows::NewRow`].
fn lease(at: &str, lease_for: &str) -> String {
    let until = later(at, lease_for);
    format!(
        "CASE WHEN {lease_for} = -2 THEN {INTERIM}
              WHEN {lease_for} < 0 THEN timestamptz '-infinity'
              ELSE {until} END"
    )
}

/// Refuses while acknowledged history is known to be missing, on a server that was not verified yet, and on
/// tables that are older than when it was: an id that is not there may have been there. Rows are in the
/// order of their ids, so that two writers lock them in the same order.
fn insert() -> String {
    let lease_until = lease("c.now", "w.lease_for");
    format!(
        "WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now)
    INSERT INTO firstwrite.records
        (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
    SELECT w.id, w.fence, c.now - w.asked_ago * interval '1 millisecond', {lease_until},
           w.profile, w.tenant, w.key, w.fingerprint, w.outcome
    FROM clock c, unnest($1::uuid[], $2::int8[], $3::int8[], $4::int2[], $5::text[], $6::bytea[],
                $7::bytea[], $8::bytea[], $10::int8[])
         AS w(id, fence, lease_for, profile, tenant, key, fingerprint, outcome, asked_ago)
    WHERE NOT EXISTS (SELECT FROM firstwrite.history_losses d WHERE d.cleared_at IS NULL)
      AND firstwrite.incarnation() = $9
      AND EXISTS (SELECT FROM firstwrite.history h WHERE h.writer = $11 AND h.sweeps >= $12)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, (SELECT now FROM clock)"
    )
}

/// Takes no lock on the record: the first to insert the ending decides, and a take-over or a removal
/// inserts one too.
fn complete() -> String {
    let (retained_until, kept_until) =
        (later("c.now", "w.replay_for"), later("c.now", "w.keep_for"));
    format!(
        "WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now)
    INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until, outcome)
    SELECT w.id, w.fence, c.now, {retained_until}, {kept_until}, w.outcome
    FROM clock c, unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::bytea[])
         AS w(id, fence, replay_for, keep_for, outcome),
         LATERAL (SELECT FROM firstwrite.records r
                  WHERE r.id = w.id AND r.fence = w.fence
                    AND r.lease_until > '-infinity' AND r.lease_until <> {INTERIM}
                  OFFSET 0) AS reserved
    ON CONFLICT (id, fence) DO NOTHING
    RETURNING id, ended_at"
    )
}

/// One row for each id, whether or not there is a record. A record that was inserted as completed has no
/// ending, and the query looks for none.
fn find() -> String {
    format!(
        "SELECT {COLUMNS}, c.now, w.id AS wanted,
       EXISTS (SELECT FROM firstwrite.history_losses d WHERE d.cleared_at IS NULL) AS history_lost
     FROM (SELECT firstwrite.now() AS now OFFSET 0) c
     CROSS JOIN unnest($1::uuid[]) AS w(id)
     LEFT JOIN firstwrite.records r ON r.id = w.id
     LEFT JOIN LATERAL (SELECT * FROM firstwrite.endings e
                        WHERE e.id = r.id AND e.fence = r.fence AND r.lease_until > '-infinity'
                        OFFSET 0) e ON true"
    )
}

fn list_all() -> String {
    format!(
        "SELECT {COLUMNS}, {LISTED},
          (SELECT * FROM firstwrite.records WHERE id >= $1 ORDER BY id LIMIT $2) r
     LEFT JOIN firstwrite.endings e
       ON e.id = r.id AND e.fence = r.fence AND r.lease_until > '-infinity'
     WHERE ($3::text IS NULL OR r.tenant = $3)
       AND ($4::text IS NULL OR $4 = CASE
            WHEN r.outcome <> '' OR e.outcome IS NOT NULL THEN 'completed'
            WHEN r.lease_until >= {UNCERTAIN} AND r.lease_until < {INTERIM} THEN 'uncertain'
            ELSE 'reserved' END)
     ORDER BY r.id LIMIT $5"
    )
}

/// Uses the index of leases, whatever the planner prefers: uncertain records are few, and looked for often.
fn list_uncertain() -> String {
    format!(
        "SELECT {COLUMNS}, {LISTED},
          (SELECT * FROM firstwrite.records
           WHERE lease_until >= {UNCERTAIN} AND lease_until < {INTERIM} OFFSET 0) r
     LEFT JOIN firstwrite.endings e ON e.id = r.id AND e.fence = r.fence
     WHERE r.id >= $1
       AND ($2::text IS NULL OR r.tenant = $2) AND e.outcome IS NULL
     ORDER BY r.id LIMIT $3"
    )
}

fn lapsed() -> String {
    format!(
        "SELECT {COLUMNS}, {LISTED}, firstwrite.records r
     LEFT JOIN firstwrite.endings e ON e.id = r.id AND e.fence = r.fence
     WHERE r.lease_until > '-infinity'
       AND r.lease_until >= $1 AND r.lease_until <= c.now AND e.outcome IS NULL
       AND ($2::text IS NULL OR r.tenant = $2)
     ORDER BY r.lease_until LIMIT $3"
    )
}

/// The length of a value that is stored apart stands beside its place: no outcome is fetched for it, and it
/// is the length before compression. An outcome that replaced an interim one counts instead of it.
const USAGE: &str = "
    SELECT r.id, r.tenant, coalesce(e.bytes, r.bytes)::int8
    FROM (SELECT id, fence, lease_until, tenant, octet_length(outcome) AS bytes
          FROM firstwrite.records WHERE id >= $1 ORDER BY id LIMIT $2) r
    LEFT JOIN LATERAL (SELECT octet_length(e.outcome) AS bytes FROM firstwrite.endings e
                       WHERE e.id = r.id AND e.fence = r.fence AND r.lease_until > '-infinity'
                       OFFSET 0) e ON true
    ORDER BY r.id";

/// The time, and the transactions that write records: a reservation becomes visible when its own ends.
const SWEEP_CLOCK: &str = "
    SELECT firstwrite.now(),
           ARRAY(SELECT DISTINCT l.virtualtransaction FROM pg_locks l
                 WHERE l.locktype = 'relation' AND l.relation = 'firstwrite.records'::regclass
                   AND l.database = (SELECT d.oid FROM pg_database d
                                     WHERE d.datname = current_database())
                   AND l.mode = 'RowExclusiveLock')";

/// Sizes of the tables in blocks, and the creation time of the oldest message that no worker has taken in.
/// There may be none by now, since the ranges are a little older than what workers know.
const EXTENT: &str = "
    SELECT pg_relation_size('firstwrite.records') / current_setting('block_size')::int8,
           pg_relation_size('firstwrite.endings') / current_setting('block_size')::int8,
           coalesce((SELECT min(m.created_at)
                     FROM firstwrite.intake i, unnest(i.starts, i.stops) AS w(start, stop),
                          LATERAL (SELECT m.created_at FROM firstwrite.messages m
                                   WHERE m.message BETWEEN w.start AND w.stop
                                   ORDER BY m.message LIMIT 1) m), 'infinity'),
           firstwrite.now()";

/// Returns the condition, as SQL, that no message of the record of a row `a` waits: a message that was taken
/// in is found by the record's id, and one that was not is usually younger than the records reaped. An hour
/// is added, because the oldest number is not quite the oldest message.
fn has_no_message(written_at: &str) -> String {
    format!(
        "NOT EXISTS (SELECT FROM firstwrite.pending p WHERE p.id = a.id)
          AND ({written_at} < $3 - interval '1 hour'
               OR a.id NOT IN (SELECT m.id
                               FROM firstwrite.intake i, unnest(i.starts, i.stops) AS w(start, stop),
                                    firstwrite.messages m
                               WHERE m.message BETWEEN w.start AND w.stop
                                 AND NOT EXISTS (SELECT FROM firstwrite.deliveries d
                                                 WHERE d.message = m.message)))"
    )
}

/// Rows are deleted by `ctid`, which takes half the time. A row may have a newer version by then, and
/// releases of PostgreSQL before autumn 2025 follow it without comparing the `ctid`, so the fence is
/// compared too.
fn reap_records() -> String {
    let has_no_message = has_no_message("a.created_at");
    format!(
        "WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    aged AS MATERIALIZED (
        SELECT r.ctid AS place, r.id, r.fence, r.created_at,
               CASE WHEN p.replay_for >= {AGES} THEN {LATEST}
                    WHEN p.linger_for >= {AGES} THEN {LATEST}
                    WHEN p.replay_for + p.linger_for >= {AGES} THEN {LATEST}
                    ELSE r.created_at + (p.replay_for + p.linger_for) * interval '1 millisecond' END
                   AS kept_until
        FROM firstwrite.records r JOIN firstwrite.profiles p ON p.profile = r.profile
        WHERE r.ctid >= $1 AND r.ctid < $2 AND r.lease_until = '-infinity'),
    due AS MATERIALIZED (
        SELECT a.place, a.fence FROM aged a, clock c
        WHERE a.kept_until <= c.now AND {has_no_message}
        ORDER BY a.place LIMIT $4),
    gone AS (
        DELETE FROM firstwrite.records r USING due d
        WHERE r.ctid = d.place AND r.fence = d.fence AND r.lease_until = '-infinity'
        RETURNING r.id)
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM due),
           (SELECT min(a.kept_until) FROM aged a WHERE a.id NOT IN (SELECT g.id FROM gone g))"
    )
}

/// Deletes an ending together with its record. An ending that only blocked a late owner is deleted alone
/// and not counted. One with an interim outcome stays until it has its final one.
fn reap_endings() -> String {
    let has_no_message = has_no_message("a.ended_at");
    format!(
        "WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    aged AS MATERIALIZED (
        SELECT e.ctid AS place, e.id, e.fence, e.ended_at,
               CASE WHEN e.kept_until <= c.now AND firstwrite.is_interim(e.outcome) THEN {LATEST}
                    ELSE e.kept_until END AS kept_until
        FROM clock c, firstwrite.endings e WHERE e.ctid >= $1 AND e.ctid < $2),
    due AS MATERIALIZED (
        SELECT a.place, a.id, a.fence, c.now FROM aged a, clock c
        WHERE a.kept_until <= c.now AND {has_no_message}
        ORDER BY a.place LIMIT $4),
    gone AS (
        DELETE FROM firstwrite.endings e USING due d
        WHERE e.ctid = d.place AND e.id = d.id AND e.fence = d.fence AND e.kept_until <= d.now
        RETURNING e.id, e.fence),
    records AS (
        DELETE FROM firstwrite.records r USING gone g
        WHERE r.id = g.id AND r.fence = g.fence RETURNING r.id)
    SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM due),
           (SELECT min(a.kept_until) FROM aged a
            WHERE (a.id, a.fence) NOT IN (SELECT g.id, g.fence FROM gone g))"
    )
}
