//! The statements of the outbox. The long ones have files of their own.

use firstwrite_core::outbox::PastEnding;

use super::parts::ENDINGS;
use crate::postgres::sql::statements;

/// Selects messages that no process has taken in, according to the stored ranges, and that are as `and` says.
fn untaken(and: &str) -> String {
    format!(
        "SELECT m.message, m.destination, m.not_before
         FROM firstwrite.intake i, unnest(i.starts, i.stops) AS w(start, stop),
              LATERAL (SELECT m.message, m.destination, m.not_before FROM firstwrite.messages m
                       WHERE m.message BETWEEN w.start AND w.stop {and}
                         AND NOT EXISTS (SELECT FROM firstwrite.pending p WHERE p.message = m.message)
                         AND NOT EXISTS (SELECT FROM firstwrite.deliveries d
                                         WHERE d.message = m.message)
                       ORDER BY m.message LIMIT 100000) m"
    )
}

/// Returns the word for the number of an ending, as SQL.
fn ending(number: &str) -> String {
    let words = ENDINGS.map(PastEnding::as_str).join("', '");
    format!("(ARRAY['{words}'])[{number} + 1]")
}

/// Selects the messages that `candidates` numbers as [`scanned`](crate::rows::scanned) reads them,
/// with `payload`. The last row of a history says how a message ended that is no longer pending. One that was
/// not taken in yet waits.
fn shown(candidates: &str, payload: &str) -> String {
    let ending = ending("d.ending");
    format!(
        "SELECT m.message, m.id, m.tenant, m.derived_key, m.destination, m.ordering_key, m.created_at,
                octet_length(m.payload), r.fence, r.provider_id, coalesce(d.fence, 0), {ending}, d.at,
                coalesce(d.count, 0),
                CASE WHEN p.message IS NOT NULL OR d.fence IS NULL THEN m.message END, m.id, m.destination,
                m.ordering_key, CASE p.state WHEN 4 THEN 0 ELSE coalesce(p.state, 0) END,
                CASE WHEN p.message IS NULL THEN m.not_before WHEN p.state = 0 THEN p.due_at END,
                coalesce(p.fence, 0), p.claimed_at, coalesce(p.delivery_count, 0),
                coalesce(p.lapse_count, 0), p.maybe_sent_at, p.status, p.problem,
                m.content_type, {payload}, m.answers
         FROM ({candidates}) n JOIN firstwrite.messages m ON m.message = n.message
         LEFT JOIN firstwrite.pending p ON p.message = m.message
         LEFT JOIN LATERAL (
             SELECT max(d.fence) AS fence, (array_agg(d.ending ORDER BY d.fence DESC))[1] AS ending,
                    (array_agg(d.at ORDER BY d.fence DESC))[1] AS at,
                    count(*) FILTER (WHERE d.ending <> 4) AS count
             FROM firstwrite.deliveries d WHERE d.message = m.message) d ON true
         LEFT JOIN LATERAL (
             SELECT d.fence, d.provider_id FROM firstwrite.deliveries d
             WHERE d.message = m.message AND d.ending = 0 ORDER BY d.fence LIMIT 1) r ON true
         ORDER BY m.message"
    )
}

/// Reads the messages that a statement numbers: later than $1, at most $2, the oldest first, and the contents
/// of those to the destination $3.
fn scan(candidates: &str) -> String {
    shown(candidates, "CASE m.destination WHEN $3 THEN m.payload END")
}

statements! {
    /// Every statement of the outbox.
    pub(in crate::postgres) struct OutboxSql() {
        intake: "SELECT starts, stops FROM firstwrite.intake", [];
        take_turn: TAKE_TURN, [BOOL];
        claim: include_str!("claim.sql"),
            [TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY, INT8, TIMESTAMPTZ,
             TIMESTAMPTZ, TIMESTAMPTZ, INT8_ARRAY, INT8_ARRAY, INT8, INT8_ARRAY, INT8_ARRAY, INT8, INT8, INT8];
        add_destinations: "INSERT INTO firstwrite.destinations (name) SELECT unnest($1::text[])
                           ON CONFLICT (name) DO NOTHING",
            [TEXT_ARRAY];

        apply: include_str!("apply.sql"),
            [INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY,
             INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4_ARRAY, TIMESTAMPTZ_ARRAY, BOOL_ARRAY,
             INT4_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, INT2_ARRAY, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, TEXT_ARRAY,
             INT2_ARRAY, INT2_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY];
        let_go: LET_GO, [INT8_ARRAY];

        put_destination: PUT_DESTINATION,
            [TEXT, INT2, TEXT, TEXT, TEXT, INT2, INT8, TEXT, INT4, UUID, TEXT, TEXT, TEXT];
        destinations: destinations(), [];
        scan_log: scan(
            "SELECT m.message FROM firstwrite.messages m WHERE m.message > $1
             ORDER BY m.message LIMIT $2"
        ), [INT8, INT8, TEXT];
        scan_pending: scan(&format!(
            "SELECT n.message FROM (
                (SELECT p.message FROM firstwrite.pending p WHERE p.message > $1
                 ORDER BY p.message LIMIT $2)
                UNION ALL
                (SELECT u.message FROM ({}) u LIMIT $2)) n
             ORDER BY n.message LIMIT $2", untaken("AND m.message > $1")
        )), [INT8, INT8, TEXT];
        scan_held: scan(
            "SELECT p.message FROM firstwrite.pending p
             WHERE p.state = $4 AND p.state IN (2, 3) AND p.message > $1 ORDER BY p.message LIMIT $2"
        ), [INT8, INT8, TEXT, INT2];
        scan_record: scan(
            "SELECT m.message FROM firstwrite.messages m WHERE m.id = $4 AND m.message > $1
             ORDER BY m.message LIMIT $2"
        ), [INT8, INT8, TEXT, UUID];
        scan_key: scan(
            "SELECT m.message FROM firstwrite.messages m WHERE m.derived_key = $4 AND m.message > $1
             ORDER BY m.message LIMIT $2"
        ), [INT8, INT8, TEXT, TEXT];
        message: shown("SELECT $1::int8 AS message", "m.payload"), [INT8];
        deliveries: format!("SELECT at, fence, {}, status, detail, provider_id
                             FROM (SELECT * FROM firstwrite.deliveries WHERE message = $1
                                   ORDER BY fence DESC LIMIT 100) d ORDER BY fence", ending("ending")),
            [INT8];

        fold: FOLD, [];
        repair: REPAIR, [INT4, TEXT, INT8];
        delete: DELETE, [INT8, INT8, INT8];
        forget: FORGET, [INT8];
    }
}

/// Says who takes messages in: what follows in the transaction asks. And who holds the lock of the table of
/// messages, if that is of interest.
const TAKE_TURN: &str = "
    SELECT set_config('fw_outbox.takes_in', pg_try_advisory_xact_lock(
               hashtextextended('intake', 'firstwrite.messages'::regclass::oid::int8))::text, true),
           CASE WHEN $1 THEN
               ARRAY(SELECT l.virtualtransaction FROM pg_locks l
                     WHERE l.locktype = 'relation' AND l.relation = 'firstwrite.messages'::regclass
                       AND l.database = (SELECT d.oid FROM pg_database d
                                         WHERE d.datname = current_database())
                       AND l.mode = 'RowExclusiveLock')
           END";

/// Writes a change of a destination. $2 to $5 the pause and $6 to $9 the opening: 0 kept, 1 set, 2 cleared, 3
/// due for a trial at once; $10 to $13 an audit entry, if there is one.
const PUT_DESTINATION: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    audited AS (
        INSERT INTO firstwrite.audit (id, at, actor, action, reason)
        SELECT $10, c.now, $11, $12, $13 FROM clock c WHERE $11::text IS NOT NULL)
    INSERT INTO firstwrite.destinations AS d (name, paused_at, paused_by, paused_action, paused_reason,
                                              open_until, opening_count, open_cause)
    SELECT $1, CASE $2 WHEN 1 THEN c.now END, $3, $4, $5,
           CASE $6 WHEN 1 THEN c.now + $7 * interval '1 millisecond' END, $9, $8
    FROM clock c
    ON CONFLICT (name) DO UPDATE
    SET paused_at = CASE $2 WHEN 0 THEN d.paused_at ELSE excluded.paused_at END,
        paused_by = CASE $2 WHEN 0 THEN d.paused_by ELSE excluded.paused_by END,
        paused_action = CASE $2 WHEN 0 THEN d.paused_action ELSE excluded.paused_action END,
        paused_reason = CASE $2 WHEN 0 THEN d.paused_reason ELSE excluded.paused_reason END,
        open_until = CASE WHEN $6 = 0 OR $6 = 3 AND d.open_until IS NULL THEN d.open_until
                          WHEN $6 = 3 THEN least(d.open_until, firstwrite.now())
                          ELSE excluded.open_until END,
        opening_count = CASE WHEN $6 IN (0, 3) THEN d.opening_count ELSE excluded.opening_count END,
        open_cause = CASE WHEN $6 IN (0, 3) THEN d.open_cause ELSE excluded.open_cause END";

/// Lets the next message go of every order to which one of these belonged, unless another one of it is on
/// its way. A statement of its own, behind the one that ended them: it sees what was taken in meanwhile.
const LET_GO: &str = "
    UPDATE firstwrite.pending p SET state = 0, due_at = greatest(p.due_at, c.now)
    FROM (SELECT firstwrite.now() AS now OFFSET 0) c,
         (SELECT DISTINCT d.destination, m.ordering_key
          FROM firstwrite.messages m JOIN firstwrite.destinations d ON d.name = m.destination
          WHERE m.message = ANY ($1) AND m.ordering_key IS NOT NULL) o,
         LATERAL (SELECT b.message FROM firstwrite.pending b
                  WHERE b.destination = o.destination AND b.ordering_key = o.ordering_key AND b.state = 4
                  ORDER BY b.message LIMIT 1) b
    WHERE p.message = b.message AND p.state = 4
      AND NOT EXISTS (SELECT FROM firstwrite.pending h
                      WHERE h.destination = o.destination AND h.ordering_key = o.ordering_key
                        AND h.ordering_key IS NOT NULL AND h.state <> 4)
    RETURNING p.message";

/// The same for whatever was missed, looking at `$3` messages from an order on; where it stopped.
const REPAIR: &str = "
    WITH looked AS MATERIALIZED (
        SELECT p.destination, p.ordering_key, p.message, p.state FROM firstwrite.pending p
        WHERE p.ordering_key IS NOT NULL AND (p.destination, p.ordering_key) > ($1, $2)
        ORDER BY p.destination, p.ordering_key, p.message LIMIT $3),
    first AS MATERIALIZED (
        SELECT DISTINCT ON (l.destination, l.ordering_key) l.* FROM looked l
        ORDER BY l.destination, l.ordering_key, l.message),
    gone AS (
        UPDATE firstwrite.pending p SET state = 0, due_at = greatest(p.due_at, firstwrite.now())
        FROM first f
        WHERE f.state = 4 AND p.message = f.message AND p.state = 4
          AND NOT EXISTS (SELECT FROM firstwrite.pending h
                          WHERE h.destination = f.destination AND h.ordering_key = f.ordering_key
                            AND h.ordering_key IS NOT NULL AND h.state <> 4)
        RETURNING p.message)
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), l.destination, l.ordering_key
    FROM looked l ORDER BY l.destination DESC, l.ordering_key DESC LIMIT 1";

fn destinations() -> String {
    let untaken = untaken("");
    format!(
        "WITH untaken AS MATERIALIZED (
        SELECT u.destination AS name, count(*) AS count, min(u.not_before) AS due_at
        FROM ({untaken}) u GROUP BY u.destination),
    tallied AS MATERIALIZED (
        SELECT t.destination, sum(t.delta) FILTER (WHERE t.kind = 0) AS open,
               sum(t.delta) FILTER (WHERE t.kind = 1) AS unknown,
               sum(t.delta) FILTER (WHERE t.kind = 2) AS dead,
               sum(t.delta) FILTER (WHERE t.kind = 3) AS delivered
        FROM firstwrite.tallies t GROUP BY t.destination)
    SELECT coalesce(d.name, u.name), d.paused_at, d.paused_by, d.paused_action, d.paused_reason,
           d.open_until, d.open_cause, coalesce(d.opening_count, 0),
           (coalesce(t.open, 0) + coalesce(u.count, 0))::int8, coalesce(t.unknown, 0)::int8,
           coalesce(t.dead, 0)::int8, coalesce(t.delivered, 0)::int8,
           nullif(least(coalesce(p.due_at, 'infinity'),
                        CASE WHEN u.due_at <= firstwrite.now() THEN u.due_at ELSE 'infinity' END),
                  'infinity')
    FROM firstwrite.destinations d FULL JOIN untaken u ON u.name = d.name
    LEFT JOIN tallied t ON t.destination = d.destination
    LEFT JOIN LATERAL (SELECT p.due_at FROM firstwrite.pending p
                       WHERE p.destination = d.destination AND p.state = 0
                         AND p.due_at <= firstwrite.now()
                       ORDER BY p.due_at LIMIT 1) p ON true
    ORDER BY 1"
    )
}

/// Folds the tallies. Rows that another transaction has locked are left for the next time.
const FOLD: &str = "
    WITH gone AS (
        DELETE FROM firstwrite.tallies t
        WHERE t.ctid = ANY (ARRAY(SELECT s.ctid FROM firstwrite.tallies s LIMIT 20000
                                  FOR UPDATE SKIP LOCKED))
        RETURNING t.destination, t.kind, t.delta)
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT g.destination, g.kind, sum(g.delta) FROM gone g
    GROUP BY g.destination, g.kind HAVING sum(g.delta) <> 0";

/// Forgets messages of others that were consumed long ago.
const FORGET: &str = "
    DELETE FROM firstwrite.inbox i
    WHERE i.id = ANY (ARRAY(SELECT s.id FROM firstwrite.inbox s,
                                 (SELECT firstwrite.now() AS now OFFSET 0) c
                            WHERE s.kept_until <= c.now ORDER BY s.kept_until LIMIT $1))";

/// Deletes, of `$2` messages from a number on, those that ended `$3` milliseconds ago; where it stopped.
const DELETE: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() - $3 * interval '1 millisecond' AS before),
    looked AS MATERIALIZED (
        SELECT m.message, m.created_at FROM firstwrite.messages m WHERE m.message > $1
        ORDER BY m.message LIMIT $2),
    old AS MATERIALIZED (
        SELECT l.message FROM clock c, looked l
        WHERE l.created_at <= c.before
          AND NOT EXISTS (SELECT FROM firstwrite.pending p WHERE p.message = l.message)
          AND EXISTS (SELECT FROM firstwrite.deliveries d
                      WHERE d.message = l.message AND d.ending IN (0, 1, 4))
          AND NOT EXISTS (SELECT FROM firstwrite.deliveries d
                          WHERE d.message = l.message AND d.at > c.before)),
    deliveries AS (
        DELETE FROM firstwrite.deliveries d USING old o WHERE d.message = o.message),
    messages AS (
        DELETE FROM firstwrite.messages m USING old o WHERE m.message = o.message
        RETURNING m.message)
    SELECT (SELECT count(*) FROM messages), (SELECT max(l.message) FROM looked l),
           (SELECT coalesce(bool_or(l.created_at > c.before), false) FROM clock c, looked l)";
