-- Writes receipts into the history, and takes every move whose guard holds.
--
-- Receipts: $1 messages, $2 fences, $3 statuses, $4 details, $5 the provider's ids.
-- Moves: $6 messages; the guard: $7 fences, $8 states (1 sending, 3 dead, 0 anything but a claim that is
-- current, -1 anything). The row afterwards: $9 states, null if the message is settled or keeps its state; $10
-- due in so many milliseconds, $11 fences, null if it is settled, $12 counts of deliveries, $13 of lapses, $14
-- since when it may have been sent, $15 whether the problem is replaced, $16 statuses, $17 problems. $18 final outcomes. A row of the history, if any: $19
-- endings, $20 fences, $21 statuses, $22 details, $23 the provider's ids, $24 when it is kept (0 with the
-- move, 1 always, 2 with the move and if it is new). $25 counts in which the message is afterwards. An audit
-- entry, if any: $26 actors, $27 actions, $28 reasons.
WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
given AS MATERIALIZED (
    SELECT * FROM unnest($6::int8[], $7::int8[], $8::int2[], $9::int2[], $10::int8[], $11::int8[],
                         $12::int4[], $13::int4[], $14::timestamptz[], $15::bool[], $16::int4[],
                         $17::text[], $18::bytea[], $19::int2[], $20::int8[], $21::int4[], $22::text[],
                         $23::text[], $24::int2[], $25::int2[], $26::text[], $27::text[], $28::text[])
        AS g(message, guard, needs, state, due_in, fence, delivery_count, lapse_count, maybe_sent_at,
             has_problem, status, problem, answer, ending, told_fence, told_status, detail, provider_id,
             kept, tally, actor, action, reason)),
idle AS MATERIALIZED (
    SELECT p.message, CASE p.state WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END AS tally
    FROM clock c, given g JOIN firstwrite.pending p ON p.message = g.message
    WHERE p.fence = g.guard
      AND (g.needs = -1 OR g.needs = 0 AND (p.state <> 1 OR p.lease_until <= c.now))
    FOR UPDATE OF p),
gone AS (
    DELETE FROM firstwrite.pending p USING given g
    WHERE p.message = g.message AND p.fence = g.guard AND g.fence IS NULL
      AND (g.needs <= 0 AND p.message IN (SELECT i.message FROM idle i) OR g.needs = p.state AND g.needs > 0)
    RETURNING p.message, p.id, p.destination, g.guard),
moved AS (
    UPDATE firstwrite.pending p
    SET state = CASE p.state WHEN 4 THEN 4 ELSE g.state END,
        due_at = CASE g.state WHEN 0 THEN c.now + g.due_in * interval '1 millisecond' ELSE p.due_at END,
        lease_until = NULL, fence = g.fence, delivery_count = g.delivery_count,
        lapse_count = g.lapse_count, maybe_sent_at = g.maybe_sent_at,
        status = CASE WHEN g.has_problem THEN g.status ELSE p.status END,
        problem = CASE WHEN g.has_problem THEN g.problem ELSE p.problem END
    FROM clock c, given g
    WHERE p.message = g.message AND p.fence = g.guard AND g.state IS NOT NULL
      AND (g.needs <= 0 AND p.message IN (SELECT i.message FROM idle i) OR g.needs = p.state AND g.needs > 0)
    RETURNING p.message, p.id, p.destination, g.guard),
-- What keeps its count, but may have been sent; a claim of it is over.
marked AS (
    UPDATE firstwrite.pending p
    SET state = CASE p.state WHEN 1 THEN 0 ELSE p.state END,
        due_at = greatest(p.due_at, c.now + g.due_in * interval '1 millisecond'),
        lease_until = NULL, claimed_at = c.now, fence = g.fence, maybe_sent_at = g.maybe_sent_at,
        status = CASE WHEN g.has_problem THEN g.status ELSE p.status END,
        problem = CASE WHEN g.has_problem THEN g.problem ELSE p.problem END
    FROM clock c, given g
    WHERE p.message = g.message AND p.fence = g.guard AND g.state IS NULL AND g.fence IS NOT NULL
      AND (g.needs <= 0 AND p.message IN (SELECT i.message FROM idle i) OR g.needs = p.state AND g.needs > 0)
    RETURNING p.message, p.id, p.destination, g.guard),
held AS (
    SELECT h.id, h.destination, g.*,
           CASE WHEN g.state IS NULL AND g.fence IS NOT NULL THEN NULL
                WHEN g.needs = 1 THEN 0 WHEN g.needs = 3 THEN 2
                ELSE (SELECT i.tally FROM idle i WHERE i.message = g.message) END AS was
    FROM (SELECT * FROM gone UNION ALL SELECT * FROM moved UNION ALL SELECT * FROM marked) h
    JOIN given g ON g.message = h.message AND g.guard = h.guard),
-- A message that is no longer pending must have a row here, or it would be taken in again; and the last one
-- says how it ended.
told AS (
    INSERT INTO firstwrite.deliveries AS d (message, fence, at, ending, status, detail, provider_id)
    SELECT DISTINCT ON (n.message, n.fence)
           n.message, n.fence, c.now, n.ending, n.status, n.detail, n.provider_id
    FROM clock c,
         (SELECT r.message, r.fence, 0 AS ending, r.status, r.detail, r.provider_id
          FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::text[], $5::text[])
                   AS r(message, fence, status, detail, provider_id)
          UNION ALL
          SELECT g.message, g.told_fence, g.ending, g.told_status, g.detail, g.provider_id
          FROM given g WHERE g.ending IS NOT NULL AND g.kept = 1
          UNION ALL
          SELECT h.message, h.told_fence, h.ending, h.told_status, h.detail, h.provider_id
          FROM held h
          WHERE h.ending IS NOT NULL
            AND (h.kept = 0
                 OR h.kept = 2
                    AND (SELECT l.ending FROM firstwrite.deliveries l WHERE l.message = h.message
                         ORDER BY l.fence DESC LIMIT 1) IS DISTINCT FROM h.ending)) n
    WHERE EXISTS (SELECT FROM firstwrite.messages m WHERE m.message = n.message)
    ORDER BY n.message, n.fence, n.ending
    ON CONFLICT (message, fence) DO UPDATE
    SET at = excluded.at, ending = excluded.ending, status = excluded.status, detail = excluded.detail,
        provider_id = excluded.provider_id
    WHERE excluded.ending = 0 AND d.ending <> 0),
tallied AS (
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT h.destination, k.kind, sum(k.delta)
    FROM held h, LATERAL (VALUES (h.was, -1), (h.tally, 1)) AS k(kind, delta)
    WHERE k.kind IS NOT NULL
    GROUP BY h.destination, k.kind HAVING sum(k.delta) <> 0),
audited AS (
    INSERT INTO firstwrite.audit (id, at, actor, action, reason)
    SELECT h.id, c.now, h.actor, h.action, h.reason FROM clock c, held h
    WHERE h.actor IS NOT NULL ORDER BY h.message),
asked AS MATERIALIZED (
    SELECT DISTINCT ON (h.id) h.id, h.answer FROM held h
    WHERE h.answer IS NOT NULL ORDER BY h.id, h.message),
-- Puts the final outcomes of `asked` in the place of interim ones, once. The record is held meanwhile, so
-- that it is not taken away or marked uncertain at the same moment.
interim AS MATERIALIZED (
    SELECT r.id, r.fence, r.profile, r.lease_until, a.answer
    FROM asked a JOIN firstwrite.records r ON r.id = a.id
    WHERE r.lease_until > '-infinity'
    FOR KEY SHARE OF r),
-- Of records that were completed at once: the row itself stays as it is.
ended AS (
    INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until, outcome)
    SELECT i.id, i.fence, c.now, firstwrite.deadline(c.now, p.replay_for),
           firstwrite.deadline(c.now, p.replay_for::numeric + p.linger_for), i.answer
    FROM clock c, interim i JOIN firstwrite.profiles p ON p.profile = i.profile
    WHERE i.lease_until = firstwrite.interim()
    ON CONFLICT (id, fence) DO NOTHING),
-- Of records that were reserved first.
replaced AS (
    UPDATE firstwrite.endings e
    SET ended_at = c.now, outcome = i.answer,
        retained_until = CASE WHEN e.retained_until >= firstwrite.interim() THEN timestamptz '294276-12-31 23:59:59.999+00'
                              ELSE c.now + (e.retained_until - e.ended_at) END,
        kept_until = CASE WHEN e.kept_until >= firstwrite.interim() THEN timestamptz '294276-12-31 23:59:59.999+00'
                          ELSE c.now + (e.kept_until - e.ended_at) END
    FROM clock c, interim i
    WHERE e.id = i.id AND e.fence = i.fence AND firstwrite.is_interim(e.outcome))
SELECT c.now, h.message, h.guard FROM clock c LEFT JOIN held h ON true
