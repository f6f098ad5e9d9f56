-- Notes that acknowledged history is missing; the journal says it once.
-- KEYS: mark, and on one shard the journal
-- ARGV: what is missing
local is_new = redis.call('HSETNX', KEYS[1], 'doubt', at(now)) == 1
if KEYS[2] then
  local last = redis.call('LINDEX', KEYS[2], -1)
  if is_new or not last or string.sub(last, 1, 1) ~= 'r' then
    redis.call('RPUSH', KEYS[2], 'r' .. at(now) .. ARGV[1])
    redis.call('LTRIM', KEYS[2], -1000, -1)
  end
end
return 1
