-- The mark of a server, or in a cluster of a shard: a hash. `count` is how many writes there were; `run`, `history` and
-- `evicted` are what the server said of itself when it was last asked; `token` names its life; `loss` stands while
-- history is missing. `lives` are the last lives, oldest first: token/count when it began/time/1 if an operator began it.
local UNREADABLE = 'CORRUPT a mark has an unknown form'
local LIVES_MAX = 64
-- The count and the fields that are named; nil if it cannot be read.
local function read_mark(key, ...)
  local values = redis.pcall('HMGET', key, 'count', ...)
  if values.err then return nil end
  local mark = {count = values[1] or nil}
  for place, name in ipairs({...}) do mark[name] = values[place + 1] or nil end
  if not string.match(mark.count or '0', '^%d+$') then return nil end
  mark.count = tonumber(mark.count or '0')
  return mark
end
-- The lives with one more.
local function begin_life(mark, token, begun_by_operator)
  local lives = {}
  for life in string.gmatch(mark.lives or '', '%S+') do lives[#lives + 1] = life end
  lives[#lives + 1] = string.format('%s/%.0f/%.0f/%s', token, mark.count, now, begun_by_operator and '1' or '0')
  return table.concat(lives, ' ', math.max(1, #lives - LIVES_MAX + 1))
end
