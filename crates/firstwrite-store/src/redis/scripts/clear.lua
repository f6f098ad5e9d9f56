-- An operator has looked: a life begins that asks no questions about the ones before.
-- KEYS: mark, lives, and on one shard the journal
-- ARGV: run, history, a new token, who and why
local was = redis.call('HGET', KEYS[1], 'doubt')
local n = redis.call('HGET', KEYS[1], 'n') or '0'
redis.call('HSET', KEYS[1], 'n', n, 'run', ARGV[1], 'token', ARGV[3], 'history', ARGV[2])
redis.call('HDEL', KEYS[1], 'doubt')
redis.call('RPUSH', KEYS[2], ARGV[3] .. ' ' .. n .. ' 1')
redis.call('LTRIM', KEYS[2], -64, -1)
if KEYS[3] and was then
  redis.call('RPUSH', KEYS[3], 'c' .. at(now) .. ARGV[4])
  redis.call('LTRIM', KEYS[3], -1000, -1)
end
return was and 1 or 0
