-- Messages of a list with what was to be delivered; behind $11 bytes, payloads are left out.
SELECT v.*, CASE WHEN v.bytes_before <= $11 THEN m.payload END, m.answers,
       CASE WHEN p.message IS NOT NULL THEN p.claimed_at
            ELSE (SELECT max(d.at) FROM firstwrite.deliveries d
                  WHERE d.message = v.message AND d.ending IN (0, 1, 4)) END
FROM (SELECT l.*, sum(l.payload_bytes) OVER (ORDER BY l.message) - l.payload_bytes AS bytes_before
      FROM (LISTED) l) v
JOIN firstwrite.messages m ON m.message = v.message
LEFT JOIN firstwrite.pending p ON p.message = v.message
ORDER BY v.message
