-- Notes that acknowledged history is missing; the journal says it once.
-- KEYS: mark, and on one shard the journal
-- ARGV: what is missing
local base, is_doubted, run, token, history = read_mark(redis.call('GET', KEYS[1]))
if not base then return redis.error_reply(UNREADABLE) end
if not is_doubted then redis.call('SET', KEYS[1], spell_mark(base, true, run, token, history)) end
if KEYS[2] then
  local last = redis.call('LINDEX', KEYS[2], -1)
  if not is_doubted or not last or string.sub(last, 1, 1) ~= 'r' then
    redis.call('RPUSH', KEYS[2], 'r' .. at(now) .. ARGV[1])
    redis.call('LTRIM', KEYS[2], -1000, -1)
  end
end
return 1
