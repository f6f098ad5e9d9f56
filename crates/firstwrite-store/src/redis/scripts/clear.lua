-- An operator has looked: a life begins that asks no questions about the ones before.
-- KEYS: mark, news, lives, and on one shard the journal
-- ARGV: run, history, a new token, who and why
local base, was = read_mark(redis.call('GET', KEYS[1]))
if not base then return redis.error_reply(UNREADABLE) end
local n = string.format('%.0f', base + redis.call('LLEN', KEYS[2]))
redis.call('SET', KEYS[1], spell_mark(base, false, ARGV[1], ARGV[3], ARGV[2]))
redis.call('RPUSH', KEYS[3], ARGV[3] .. ' ' .. n .. ' 1')
redis.call('LTRIM', KEYS[3], -64, -1)
if KEYS[4] and was then
  redis.call('RPUSH', KEYS[4], 'c' .. at(now) .. ARGV[4])
  redis.call('LTRIM', KEYS[4], -1000, -1)
end
return was and 1 or 0
