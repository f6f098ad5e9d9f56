-- Ids whose time has come, the longest overdue first.
-- KEYS: leases or kept
-- ARGV: limit
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', at(now), 'LIMIT', 0, ARGV[1])}
