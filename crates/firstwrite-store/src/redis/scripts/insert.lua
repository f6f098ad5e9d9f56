-- Puts a record where nothing stands.
-- KEYS: record, ids, leases or kept, mark
-- ARGV: id, run, token, seen, state, fence, first duration, second duration, tail
local there = redis.call('GET', KEYS[1])
local mark = redis.call('HMGET', KEYS[4], 'n', 'run', 'token', 'doubt')
local n = tonumber(mark[1] or '0')
if there then return {'stands', now, n, there} end
-- Whoever writes knows which life of the server it writes to, and that nothing it saw is missing.
if mark[2] ~= ARGV[2] or mark[3] ~= ARGV[3] or n < tonumber(ARGV[4]) then return {'greet', now, n} end
if mark[4] then return {'doubt', now, n} end
local due, retained = deadlines(ARGV[5], ARGV[7], ARGV[8])
redis.call('SET', KEYS[1], '1' .. ARGV[5] .. ARGV[6] .. at(now) .. at(due) .. retained .. ARGV[9])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
if due then redis.call('ZADD', KEYS[3], at(due), ARGV[1]) end
return {'done', now, redis.call('HINCRBY', KEYS[4], 'n', 1)}
