-- Messages as an operator sees them, later than $1, oldest first: those that $2 to $6 match (destination,
-- tenant, derived key, problem, state), $7 at most.
SELECT v.* FROM (
    SELECT m.message, m.id, m.tenant, m.derived_key, m.destination, m.ordering_key, m.created_at,
           CASE WHEN p.state = 4 THEN 0 WHEN p.state IS NOT NULL THEN p.state
                WHEN d.fence IS NULL THEN 0
                ELSE CASE d.ending WHEN 4 THEN 6 WHEN 1 THEN 7 ELSE 5 END END::int2 AS state,
           coalesce(p.fence, d.fence, 0) AS fence,
           CASE WHEN p.state = 0 THEN p.due_at WHEN p.state IS NULL AND d.fence IS NULL
                THEN m.not_before END AS due_at,
           coalesce(d.count::int, 0) AS delivery_count, p.maybe_sent_at, p.status,
           p.problem, r.message IS NOT NULL AS has_arrived, r.provider_id,
           octet_length(m.payload) AS payload_bytes, m.content_type, p.claimed_at
    FROM (CANDIDATES) n
    JOIN firstwrite.messages m ON m.message = n.message
    LEFT JOIN firstwrite.pending p ON p.message = m.message
    LEFT JOIN LATERAL (
        SELECT max(d.fence) AS fence, (array_agg(d.ending ORDER BY d.fence DESC))[1] AS ending,
               count(*) FILTER (WHERE d.ending <> 4) AS count
        FROM firstwrite.deliveries d WHERE d.message = m.message) d ON true
    LEFT JOIN LATERAL (
        SELECT d.message, d.provider_id FROM firstwrite.deliveries d
        WHERE d.message = m.message AND d.ending = 0 ORDER BY d.fence LIMIT 1) r ON true
    WHERE ($2::text IS NULL OR m.destination = $2) AND ($3::text IS NULL OR m.tenant = $3)
      AND ($4::text IS NULL OR m.derived_key = $4)
      AND ($5::text IS NULL OR strpos(p.problem, $5) > 0 OR p.status::text = $5)) v
WHERE $6::int2 IS NULL OR v.state = $6
ORDER BY v.message LIMIT $7
