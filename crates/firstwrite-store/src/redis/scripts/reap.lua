-- Deletes one completed record past its time.
-- KEYS: record, journal, ids, leases, kept
-- ARGV: id
local there = redis.call('GET', KEYS[1])
if there and string.sub(there, 2, 2) == 'c' then
  local due = string.sub(there, 35, 50)
  if due > at(now) then return 0 end
  redis.call('DEL', KEYS[1])
  local length = note(KEYS[2], ARGV[1], 'x', at(0))
  if type(length) == 'table' then return length end
  if length % FOLD_AT == 0 then fold_or_wait(unpack(KEYS, 2, 5)) end
  return 1
end
redis.call('ZREM', KEYS[5], ARGV[1])
return 0
