-- An operator has looked: a life begins, and what was missed before is not asked for again.
-- KEYS: mark, and of one shard the journal
-- ARGV: run, history, evicted, a new token, who and why; the life that records were marked in, and the count of its
--   writes that was seen before
local mark = read_mark(KEYS[1], 'loss', 'lives', 'token')
if not mark then return redis.error_reply(UNREADABLE) end
if mark.loss and (mark.token ~= ARGV[6] or mark.count < tonumber(ARGV[7])) then return -1 end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'history', ARGV[2], 'evicted', ARGV[3], 'token', ARGV[4],
  'lives', begin_life(mark, ARGV[4], true))
redis.call('HDEL', KEYS[1], 'loss')
if KEYS[2] and mark.loss then
  redis.call('RPUSH', KEYS[2], 'c' .. at(now) .. ARGV[5])
  redis.call('LTRIM', KEYS[2], -1000, -1)
end
return mark.loss and 1 or 0
