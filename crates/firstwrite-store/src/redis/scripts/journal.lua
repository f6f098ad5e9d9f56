-- What became of a shard's records is noted in its journal, one entry for each write: an id, the new state (in capitals
-- where nothing stood before, `x` where nothing stands now) and when it falls due. The indexes are brought up to date
-- by many entries at a time: most reservations are completed by then and never get there.
local FOLD_AT = 64
-- More wait only where an index cannot be written; then they are given up.
local NEWS_MAX = 1024
local function fold(journal, ids, leases, kept)
  local entries = redis.call('LRANGE', journal, 0, -1)
  local is_new, last = {}, {}
  for _, entry in ipairs(entries) do
    local id, state = string.sub(entry, 1, 16), string.sub(entry, 17, 17)
    if not last[id] then is_new[id] = state == 'R' or state == 'C' end
    last[id] = entry
  end
  local into, out_of = {{}, {}, {}}, {{}, {}, {}}
  local function put(index, id, belongs, score)
    if belongs then
      local list = into[index]
      list[#list + 1] = score
      list[#list + 1] = id
    elseif not is_new[id] then
      local list = out_of[index]
      list[#list + 1] = id
    end
  end
  for id, entry in pairs(last) do
    local state, due = string.lower(string.sub(entry, 17, 17)), string.sub(entry, 18, 33)
    if state == 'x' or is_new[id] then put(1, id, state ~= 'x', '0') end
    put(2, id, state == 'r' and due ~= NEVER, due)
    put(3, id, state == 'c' and due ~= NEVER, due)
  end
  for index, name in ipairs({ids, leases, kept}) do
    if into[index][1] then redis.call('ZADD', name, unpack(into[index])) end
    if out_of[index][1] then redis.call('ZREM', name, unpack(out_of[index])) end
  end
  redis.call('DEL', journal)
end
-- Notes a write. The count of entries, or an error.
local function note(journal, id, state, due)
  return redis.pcall('RPUSH', journal, id .. state .. due)
end
-- Brings the indexes up to date. One that cannot be written harms nobody's record: the journal wait, as far as there is
-- room for them.
local function fold_or_wait(journal, ids, leases, kept)
  if pcall(fold, journal, ids, leases, kept) then return end
  local length = redis.call('LLEN', journal)
  if length >= NEWS_MAX then redis.call('LTRIM', journal, length, -1) end
end
