-- Changes a record if the guard still holds.
-- KEYS: record, ids, leases, kept, mark, audits
-- ARGV: id, guard, fence, state, lease, audit entry, change, then what the change needs
local there = redis.call('GET', KEYS[1])
local function moved(what)
  return {'moved', now, tonumber(redis.call('HGET', KEYS[5], 'n') or '0'), what}
end
if not there then return moved() end
local length = tonumber(string.sub(there, 67, 74), 16)
if string.sub(there, 1, 1) ~= '1' or not length or #there < 74 + length then
  return redis.error_reply('CORRUPT a record has an unknown form')
end
local state, fence, lease = string.sub(there, 2, 2), string.sub(there, 3, 18), string.sub(there, 35, 50)
local change = ARGV[7]
local holds = fence == ARGV[3]
if ARGV[2] == 'owner' then
  holds = holds and state ~= 'c'
else
  holds = holds and state == ARGV[4] and (state ~= 'r' or lease == ARGV[5])
end
if change == 'renew' and state ~= 'r' then holds = false end
if not holds then return moved(there) end

if change == 'remove' then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
else
  local wanted, created, due, retained, tail
  created, tail = string.sub(there, 19, 34), string.sub(there, 67, 74 + length)
  if change == 'renew' then
    wanted = 'r'
    due, retained = deadlines('r', ARGV[8])
  elseif change == 'complete' then
    wanted, tail = 'c', tail .. ARGV[10]
    due, retained = deadlines('c', ARGV[8], ARGV[9])
  elseif change == 'uncertain' then
    wanted, due, retained = 'u', 0, at(0)
  else
    wanted, fence, created, tail = ARGV[8], ARGV[9], at(now), ARGV[12]
    due, retained = deadlines(wanted, ARGV[10], ARGV[11])
  end
  redis.call('SET', KEYS[1], '1' .. wanted .. fence .. created .. at(due) .. retained .. tail)
  local index = {r = KEYS[3], c = KEYS[4]}
  if index[state] and (state ~= wanted or not due) then redis.call('ZREM', index[state], ARGV[1]) end
  if index[wanted] and due then redis.call('ZADD', index[wanted], at(due), ARGV[1]) end
end
if ARGV[6] ~= '' then
  redis.call('RPUSH', KEYS[6], at(now) .. ARGV[6])
  redis.call('LTRIM', KEYS[6], -1000, -1)
end
return {'done', now, redis.call('HINCRBY', KEYS[5], 'n', 1)}
