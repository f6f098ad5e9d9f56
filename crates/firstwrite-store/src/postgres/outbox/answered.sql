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
