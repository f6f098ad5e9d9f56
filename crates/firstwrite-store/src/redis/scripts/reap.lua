-- Deletes one completed record past its time.
-- KEYS: record, ids, kept, mark
-- ARGV: id
local there = redis.call('GET', KEYS[1])
if there and string.sub(there, 2, 2) == 'c' then
  local due = string.sub(there, 35, 50)
  if due > at(now) then return 0 end
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('HINCRBY', KEYS[4], 'n', 1)
  return 1
end
redis.call('ZREM', KEYS[3], ARGV[1])
return 0
