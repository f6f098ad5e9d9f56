-- Ids whose time has come, the longest overdue first, and what is not yet in the index. Whatever that outdates may
-- take places in the answer, so there are as many more.
-- KEYS: leases or kept, journal
-- ARGV: limit
local journal = redis.call('LRANGE', KEYS[2], 0, -1)
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', at(now), 'LIMIT', 0, ARGV[1] + #journal), journal}
