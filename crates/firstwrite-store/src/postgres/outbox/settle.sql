-- Writes down receipts, and how claims ended.
--
-- Receipts: $1 messages, $2 fences, $3 statuses, $4 details, $5 the provider's ids. Claims: $6 messages,
-- $7 fences, $8 what becomes of them (0 delivered, 1 waiting, 2 unknown, 3 dead, 4 refused), $9
-- pauses in milliseconds, $10 whether the delivery counts, $11 whether it was sent (0 no, 1 as before, 2 maybe),
-- $12 problems, $13 final outcomes; of the delivery, if there was one, $14 endings, $15 statuses,
-- $16 details, $17 the provider's ids.
WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
given AS MATERIALIZED (
    SELECT * FROM unnest($6::int8[], $7::int8[], $8::int2[], $9::int8[], $10::bool[], $11::int2[],
                         $12::text[], $13::bytea[], $14::int2[], $15::int4[], $16::text[], $17::text[])
        AS g(message, fence, next, pause, counts, sent, problem, answer, ending, status, detail,
             provider_id)),
gone AS (
    DELETE FROM firstwrite.pending p USING given g
    WHERE p.message = g.message AND p.fence = g.fence AND p.state = 1 AND g.next IN (0, 4)
    RETURNING p.message, p.destination, g.next),
moved AS (
    UPDATE firstwrite.pending p
    SET state = CASE g.next WHEN 1 THEN 0 ELSE g.next END,
        due_at = CASE g.next WHEN 1 THEN c.now + g.pause * interval '1 millisecond'
                             ELSE p.due_at END,
        lease_until = NULL,
        delivery_count = p.delivery_count + g.counts::int,
        lapse_count = CASE g.next WHEN 1 THEN 0 ELSE p.lapse_count END,
        maybe_sent_at = CASE g.sent WHEN 0 THEN NULL WHEN 1 THEN p.maybe_sent_at
                                    ELSE coalesce(p.maybe_sent_at, p.claimed_at) END,
        problem = CASE WHEN g.next = 2 AND g.ending IS NULL AND p.problem IS NOT NULL
                       THEN left(g.problem || ': ' || p.problem, 500)
                       ELSE coalesce(g.problem, p.problem) END,
        status = CASE WHEN g.ending IS NULL THEN p.status ELSE g.status END
    FROM clock c, given g
    WHERE p.message = g.message AND p.fence = g.fence AND p.state = 1 AND g.next NOT IN (0, 4)
    RETURNING p.message, p.destination, g.next),
held AS (
    SELECT g.message FROM gone g UNION ALL SELECT m.message FROM moved m),
-- A message that is no longer pending must have a delivery, or it would be taken in again; and the last one
-- says how it ended.
delivered AS (
    INSERT INTO firstwrite.deliveries (message, fence, at, ending, status, detail, provider_id)
    SELECT DISTINCT ON (d.message, d.fence)
           d.message, d.fence, c.now, d.ending, d.status, d.detail, d.provider_id
    FROM clock c,
         (SELECT r.message, r.fence, 0 AS ending, r.status, r.detail, r.provider_id
          FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::text[], $5::text[])
                   AS r(message, fence, status, detail, provider_id)
          UNION ALL
          SELECT g.message, g.fence, g.ending, g.status, g.detail, g.provider_id FROM given g
          WHERE g.ending = 0 OR g.ending IS NOT NULL AND g.message IN (SELECT h.message FROM held h)
          UNION ALL
          SELECT g.message, g.fence, e.ending, NULL, 'known from before, or from the destination',
                 g.provider_id
          FROM given g JOIN gone h ON h.message = g.message,
               LATERAL (SELECT CASE g.next WHEN 0 THEN 0 ELSE 1 END AS ending) e
          WHERE g.ending IS NULL
            AND (SELECT l.ending FROM firstwrite.deliveries l WHERE l.message = g.message
                 ORDER BY l.fence DESC LIMIT 1) IS DISTINCT FROM e.ending) d
    WHERE EXISTS (SELECT FROM firstwrite.messages m WHERE m.message = d.message)
    ORDER BY d.message, d.fence
    ON CONFLICT (message, fence) DO NOTHING),
tallied AS (
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT t.destination, t.kind, sum(t.delta)
    FROM (SELECT g.destination, k.kind, k.delta FROM gone g, (VALUES (0, -1), (3, 1)) AS k(kind, delta)
          WHERE g.next = 0 OR k.kind = 0
          UNION ALL
          SELECT m.destination, k.kind, k.delta
          FROM moved m, LATERAL (VALUES (0, -1), (m.next - 1, 1)) AS k(kind, delta)
          WHERE m.next <> 1) t
    GROUP BY t.destination, t.kind),
asked AS MATERIALIZED (
    SELECT DISTINCT ON (m.id) m.id, g.answer
    FROM given g JOIN held h ON h.message = g.message JOIN firstwrite.messages m ON m.message = g.message
    WHERE g.answer IS NOT NULL ORDER BY m.id, g.message),
ANSWERED
SELECT c.now, h.message FROM clock c LEFT JOIN held h ON true
