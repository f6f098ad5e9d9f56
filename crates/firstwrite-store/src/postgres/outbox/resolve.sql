-- Ends the wait of one message on somebody's word.
--
-- $1 the message, $2 the fence it wore when it was looked into, $3 the next one; $4 what was found (0 it
-- arrived, 1 it never will, 4 it is dropped, -1 it did not arrive and is sent again); $5 the provider's id, $6 the final outcome; $7 to $9 who did
-- what, and why.
WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
found AS MATERIALIZED (
    SELECT p.message, p.id, p.destination, p.state
    FROM clock c, firstwrite.pending p
    WHERE p.message = $1 AND p.fence = $2 AND (p.state <> 1 OR p.lease_until <= c.now)
    FOR UPDATE OF p),
gone AS (
    DELETE FROM firstwrite.pending p USING found f WHERE p.message = f.message AND $4 >= 0),
moved AS (
    UPDATE firstwrite.pending p
    SET state = CASE WHEN p.state = 4 THEN 4 ELSE 0 END, fence = $3, due_at = c.now,
        lease_until = NULL, maybe_sent_at = NULL, delivery_count = 0, lapse_count = 0
    FROM clock c, found f WHERE p.message = f.message AND $4 < 0),
delivered AS (
    INSERT INTO firstwrite.deliveries (message, fence, at, ending, detail, provider_id)
    SELECT f.message, $3, c.now, $4, $9, $5 FROM clock c, found f WHERE $4 >= 0
    ON CONFLICT (message, fence) DO NOTHING),
audited AS (
    INSERT INTO firstwrite.audit (id, at, actor, action, reason)
    SELECT f.id, c.now, $7, $8, $9 FROM clock c, found f),
tallied AS (
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT f.destination, k.kind, sum(k.delta)
    FROM found f,
         LATERAL (VALUES (CASE f.state WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END, -1),
                         (CASE $4 WHEN 0 THEN 3 WHEN -1 THEN 0 END, 1)) AS k(kind, delta)
    WHERE k.kind IS NOT NULL
    GROUP BY f.destination, k.kind HAVING sum(k.delta) <> 0),
asked AS MATERIALIZED (SELECT f.id, $6::bytea AS answer FROM found f WHERE $6::bytea IS NOT NULL),
ANSWERED
SELECT f.message FROM found f
