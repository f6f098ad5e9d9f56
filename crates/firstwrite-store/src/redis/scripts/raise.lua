-- Notes that acknowledged history is missing; the journal says it once.
-- KEYS: mark, and of one shard the journal
-- ARGV: what is missing
local mark = read_mark(KEYS[1], 'loss')
if not mark then return redis.error_reply(UNREADABLE) end
if not mark.loss then redis.call('HSET', KEYS[1], 'loss', '1') end
if KEYS[2] then
  local last = redis.call('LINDEX', KEYS[2], -1)
  if not mark.loss or not last or string.sub(last, 1, 1) ~= 'r' then
    redis.call('RPUSH', KEYS[2], 'r' .. at(now) .. ARGV[1])
    redis.call('LTRIM', KEYS[2], -1000, -1)
  end
end
return 1
