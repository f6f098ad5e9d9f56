-- Puts dead letters back: up to $6 of those that $1 to $5 match; $7 and $8 are who does it, and why.
WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
found AS MATERIALIZED (
    SELECT p.message, p.id, p.destination
    FROM firstwrite.pending p JOIN firstwrite.messages m ON m.message = p.message
    WHERE p.state = 3 AND p.message > $5
      AND ($1::text IS NULL OR m.destination = $1) AND ($2::text IS NULL OR m.tenant = $2)
      AND ($3::text IS NULL OR m.derived_key = $3)
      AND ($4::text IS NULL OR strpos(p.problem, $4) > 0 OR p.status::text = $4)
    ORDER BY p.message LIMIT $6
    FOR NO KEY UPDATE OF p SKIP LOCKED),
moved AS (
    UPDATE firstwrite.pending p
    SET state = 0, due_at = c.now, delivery_count = 0, lapse_count = 0
    FROM clock c, found f WHERE p.message = f.message),
audited AS (
    INSERT INTO firstwrite.audit (id, at, actor, action, reason)
    SELECT f.id, c.now, $7, 'redrive message ' || f.message, $8 FROM clock c, found f
    ORDER BY f.message),
tallied AS (
    INSERT INTO firstwrite.tallies (destination, kind, delta)
    SELECT f.destination, k.kind, k.sign * count(*)
    FROM found f, (VALUES (0, 1), (2, -1)) AS k(kind, sign)
    GROUP BY f.destination, k.kind, k.sign)
SELECT count(*) FROM found
