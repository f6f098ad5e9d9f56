-- Takes messages in, and claims what is wanted, in one statement: so a message that is wanted at once is
-- written once, already claimed.
--
-- $1 destinations, $2 how many of each, $3 leases in milliseconds, $4 from when on to look for due ones, as
-- long as it is before $5; $6 the nonce; $7 from when on to look for leases that ran out, as long as it is
-- before $8, and $9 not before when; $10 to $11 numbers of messages to look at; $12 the server that is
-- known; $13 to $14 the ranges to write down, if it is time; $15 how many of them to look at, if not as many
-- as are wanted; $16 to $17 this process and how often it has swept.
--
-- Whether this transaction takes messages in was settled by the statement before: its snapshot is older
-- than the lock, this one's is not. So what another intake has taken in before is seen here as pending, or
-- as delivered since.
--
-- What a claim makes of a message is the rule of `Standing::claim` in core's outbox/standing.rs, as SQL.
WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
trust AS MATERIALIZED (
    SELECT t.is_known, t.history_lost, t.is_known AND NOT t.history_lost AS may_claim,
           -- Who wants nothing may be about to mark what is there as maybe sent, while history is lost.
           t.is_known AND (NOT t.history_lost OR cardinality($1::text[]) = 0)
               AND current_setting('fw_outbox.takes_in', true) = 'true' AS takes_in
    FROM (SELECT firstwrite.incarnation() = $12
                     AND EXISTS (SELECT FROM firstwrite.history h
                                 WHERE h.writer = $16 AND h.sweeps >= $17) AS is_known,
                 EXISTS (SELECT FROM firstwrite.history_losses d WHERE d.cleared_at IS NULL) AS history_lost
          OFFSET 0) t),
wanted AS MATERIALIZED (
    SELECT d.destination, w.name, w.lease_for * interval '1 millisecond' AS lease_for,
           CASE WHEN d.open_until IS NULL THEN w.count_max ELSE least(w.count_max, 1) END AS count_max,
           CASE WHEN c.now >= w.due_from AND c.now < w.whole_at THEN w.due_from
                ELSE timestamptz '-infinity' END AS due_from,
           d.paused_at IS NOT NULL OR coalesce(d.open_until > c.now, false) AS is_closed,
           d.open_until IS NOT NULL AS is_trial
    FROM clock c, trust t,
         unnest($1::text[], $2::int8[], $3::int8[], $4::timestamptz[], $5::timestamptz[])
             AS w(name, count_max, lease_for, due_from, whole_at),
         firstwrite.destinations d
    WHERE d.name = w.name AND t.may_claim),
open AS MATERIALIZED (SELECT w.* FROM wanted w WHERE NOT w.is_closed),

-- What was claimed and not settled in time. Not by destination: there are few.
lapsed AS MATERIALIZED (
    SELECT p.message, p.destination, p.lease_until AS at
    FROM clock c CROSS JOIN LATERAL (
        SELECT p.message, p.destination, p.lease_until FROM firstwrite.pending p
        WHERE p.state = 1 AND p.lease_until <= c.now
          AND p.lease_until >= CASE WHEN c.now >= $7 AND c.now < $8 THEN $7
                                    ELSE timestamptz '-infinity' END
          AND p.destination = ANY (ARRAY(SELECT o.destination FROM open o))
        ORDER BY p.lease_until LIMIT 1000
        FOR NO KEY UPDATE SKIP LOCKED) p
    WHERE c.now >= $9 OR c.now < $7),
due AS MATERIALIZED (
    SELECT p.message, p.destination, p.due_at AS at
    FROM clock c CROSS JOIN open o CROSS JOIN LATERAL (
        SELECT p.message, p.destination, p.due_at FROM firstwrite.pending p
        WHERE p.destination = o.destination AND p.state = 0
          AND p.due_at >= o.due_from AND p.due_at <= c.now
        ORDER BY p.due_at, p.message LIMIT o.count_max
        FOR NO KEY UPDATE SKIP LOCKED) p),
picked AS MATERIALIZED (
    SELECT f.message, f.destination, f.has_lapsed, o.is_trial, o.lease_for
    FROM (SELECT u.message, u.destination, u.has_lapsed,
                 row_number() OVER (PARTITION BY u.destination
                                    ORDER BY u.has_lapsed DESC, u.at, u.message) AS place
          FROM (SELECT l.*, true AS has_lapsed FROM lapsed l
                UNION ALL SELECT d.*, false FROM due d) u) f,
         open o
    WHERE o.destination = f.destination AND f.place <= o.count_max),

-- What is wanted beyond that. Only so much is taken in as a rule: a message that waits in the log is
-- written once, when it is wanted; one that waits in the queue is written twice.
room AS MATERIALIZED (
    SELECT o.destination, o.is_trial, o.lease_for, o.count_max - count(k.message) AS count_max
    FROM open o LEFT JOIN picked k ON k.destination = o.destination
    GROUP BY o.destination, o.is_trial, o.lease_for, o.count_max),
-- Nothing is known of a destination until a message goes there.
missing AS MATERIALIZED (
    SELECT coalesce(sum(r.count_max), 0)
           + coalesce((SELECT sum(w.count_max) FROM unnest($1::text[], $2::int8[]) AS w(name, count_max)
                       WHERE NOT EXISTS (SELECT FROM firstwrite.destinations d
                                         WHERE d.name = w.name)), 0) AS count
    FROM room r),
look AS MATERIALIZED (
    SELECT CASE WHEN $15 > 0 THEN $15 ELSE least(1000, m.count)::int8 END AS count_max FROM missing m),
looked AS MATERIALIZED (
    SELECT m.message, m.id, m.destination AS name, m.ordering_key, m.not_before, d.destination
    FROM trust t CROSS JOIN unnest($10::int8[], $11::int8[]) AS w(start, stop)
    CROSS JOIN LATERAL (
        SELECT m.message, m.id, m.destination, m.ordering_key, m.not_before
        FROM firstwrite.messages m WHERE m.message BETWEEN w.start AND w.stop
        ORDER BY m.message LIMIT (SELECT l.count_max FROM look l)) m
    LEFT JOIN firstwrite.destinations d ON d.name = m.destination
    WHERE t.takes_in
    ORDER BY m.message LIMIT (SELECT l.count_max FROM look l)),
-- What has predecessors waits for them. One of them is held until this commits: whoever delivers it waits
-- for that, and then finds the successor. Any message of the order will do, also a younger one: what comes
-- to light late comes behind it. Nobody is waited for: if all are being delivered this very moment, the
-- message is left for the next time.
arriving AS MATERIALIZED (
    SELECT l.message, l.id, l.destination, l.ordering_key, greatest(l.not_before, c.now) AS due_at,
           o.is_there IS NOT NULL AND h.message IS NULL AS is_left,
           o.is_there IS NOT NULL
               OR l.ordering_key IS NOT NULL
                  AND row_number() OVER (PARTITION BY l.destination, l.ordering_key
                                         ORDER BY l.message) > 1 AS is_blocked
    FROM clock c CROSS JOIN looked l
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM firstwrite.pending p
        WHERE p.destination = l.destination AND p.ordering_key = l.ordering_key LIMIT 1) o ON true
    LEFT JOIN LATERAL (
        SELECT p.message FROM firstwrite.pending p
        WHERE p.destination = l.destination AND p.ordering_key = l.ordering_key
        ORDER BY p.message LIMIT 1
        FOR KEY SHARE SKIP LOCKED) h ON true
    WHERE l.destination IS NOT NULL
      AND NOT EXISTS (SELECT FROM firstwrite.pending p WHERE p.message = l.message)
      AND NOT EXISTS (SELECT FROM firstwrite.deliveries d WHERE d.message = l.message)),
placed AS MATERIALIZED (
    SELECT a.*, r.is_trial, r.lease_for,
           NOT a.is_blocked AND a.due_at <= c.now AND r.destination IS NOT NULL
               AND row_number() OVER (PARTITION BY a.destination, a.is_blocked OR a.due_at > c.now
                                      ORDER BY a.message) <= r.count_max AS is_wanted
    FROM clock c CROSS JOIN arriving a LEFT JOIN room r ON r.destination = a.destination
    WHERE NOT a.is_left),

-- Of two workers that come at the same moment, the second finds it locked, or no longer due.
trials AS (
    UPDATE firstwrite.destinations d SET open_until = c.now + o.lease_for
    FROM clock c, open o
    WHERE d.destination = o.destination AND o.is_trial
      AND d.destination IN (
          SELECT l.destination FROM clock c, firstwrite.destinations l
          WHERE l.destination IN (SELECT k.destination FROM picked k WHERE k.is_trial
                                  UNION ALL
                                  SELECT a.destination FROM placed a WHERE a.is_trial AND a.is_wanted)
            AND l.paused_at IS NULL AND l.open_until <= c.now
          FOR NO KEY UPDATE OF l SKIP LOCKED)
      AND d.paused_at IS NULL AND d.open_until <= c.now
    RETURNING d.destination),
claimed AS (
    UPDATE firstwrite.pending p
    SET state = 1, fence = ((p.fence >> 40) + 1) << 40 | $6, claimed_at = c.now,
        lease_until = c.now + k.lease_for,
        maybe_sent_at = CASE WHEN k.has_lapsed THEN coalesce(p.maybe_sent_at, p.claimed_at)
                             ELSE p.maybe_sent_at END,
        lapse_count = p.lapse_count + k.has_lapsed::int
    FROM clock c, picked k
    WHERE p.message = k.message
      AND (NOT k.is_trial OR k.destination IN (SELECT t.destination FROM trials t))
    RETURNING p.message, p.fence, p.delivery_count, p.lapse_count, p.maybe_sent_at, k.is_trial,
              p.status, p.problem),
taken AS (
    INSERT INTO firstwrite.pending (message, id, destination, ordering_key, due_at, state, fence,
                                    claimed_at, lease_until)
    SELECT a.message, a.id, a.destination, a.ordering_key, a.due_at,
           CASE WHEN a.is_blocked THEN 4 WHEN a.goes THEN 1 ELSE 0 END,
           CASE WHEN a.goes THEN 1::int8 << 40 | $6 ELSE 0 END,
           CASE WHEN a.goes THEN c.now END, CASE WHEN a.goes THEN c.now + a.lease_for END
    FROM clock c,
         (SELECT a.*, a.is_wanted AND (NOT a.is_trial OR a.destination IN (SELECT t.destination
                                                                           FROM trials t)) AS goes
          FROM placed a) a
    RETURNING message, fence, destination, state),
tallied AS (
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT t.destination, 0, count(*) FROM taken t GROUP BY t.destination),
noted AS (
    UPDATE firstwrite.intake i SET starts = $13, stops = $14
    FROM trust t
    WHERE t.takes_in AND $13::int8[] IS NOT NULL
      AND i.starts[cardinality(i.starts)] <= ($13::int8[])[cardinality($13::int8[])]),
parcels AS (
    SELECT k.* FROM claimed k
    UNION ALL
    SELECT t.message, t.fence, 0, 0, NULL, o.is_trial, NULL, NULL
    FROM taken t, open o WHERE t.state = 1 AND o.destination = t.destination)
SELECT NULL::text AS tenant, NULL::text AS derived_key, NULL::timestamptz AS created_at,
       NULL::text AS content_type, NULL::bytea AS payload, NULL::bytea AS answers,
       NULL::int8 AS message, NULL::uuid AS id, NULL::text AS destination, NULL::text AS ordering_key,
       NULL::int4 AS state, NULL::timestamptz AS due_at, NULL::int8 AS fence,
       NULL::timestamptz AS claimed_at, NULL::int4 AS delivery_count, NULL::int4 AS lapse_count,
       NULL::timestamptz AS maybe_sent_at, NULL::int4 AS status, NULL::text AS problem,
       NULL::bool AS is_trial, NULL::bool AS has_arrived, NULL::text AS provider_id,
       c.now, t.is_known, t.history_lost, t.takes_in,
       ARRAY(SELECT w.name FROM wanted w
             WHERE w.is_closed
                OR w.is_trial AND NOT EXISTS (SELECT FROM trials s WHERE s.destination = w.destination)
                   AND (EXISTS (SELECT FROM picked k WHERE k.destination = w.destination)
                        OR EXISTS (SELECT FROM placed a
                                   WHERE a.destination = w.destination AND a.is_wanted))) AS closed,
       -- Where everything that was due has been found.
       ARRAY(SELECT o.name FROM open o
             WHERE (SELECT count(*) FROM due d WHERE d.destination = o.destination) < o.count_max)
           AS exhausted,
       (SELECT count(*) FROM lapsed) AS lapsed,
       ARRAY(SELECT l.message FROM looked l
             WHERE l.destination IS NOT NULL
               AND l.message NOT IN (SELECT a.message FROM arriving a WHERE a.is_left)
             ORDER BY l.message) AS seen,
       -- Null if nothing was looked at.
       (SELECT l.count_max = (SELECT count(*) FROM looked) FROM look l WHERE l.count_max > 0) AS is_full,
       ARRAY(SELECT DISTINCT l.name FROM looked l WHERE l.destination IS NULL) AS strangers,
       EXISTS (SELECT FROM arriving a WHERE a.is_left) AS leaves_some,
       (SELECT m.count > (SELECT count(*) FROM taken t WHERE t.state = 1) FROM missing m)
           OR cardinality($1::text[]) = 0 AS wants_more
FROM clock c, trust t
UNION ALL
SELECT m.tenant, m.derived_key, m.created_at, m.content_type, m.payload, m.answers,
       k.message, m.id, m.destination, m.ordering_key, 1, NULL, k.fence, NULL, k.delivery_count,
       k.lapse_count, k.maybe_sent_at, k.status, k.problem,
       k.is_trial, d.message IS NOT NULL, d.provider_id,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM parcels k JOIN firstwrite.messages m ON m.message = k.message
LEFT JOIN LATERAL (
    SELECT d.message, d.provider_id FROM firstwrite.deliveries d
    WHERE d.message = k.message AND d.ending = 0 AND k.fence >> 41 > 0
    ORDER BY d.fence LIMIT 1) d ON true
