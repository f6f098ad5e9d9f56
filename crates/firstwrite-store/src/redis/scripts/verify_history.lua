-- Asks a server whether what was acknowledged is still there, and begins a life of it if it was started or is another.
-- KEYS: mark
-- ARGV: run, history, former history, evicted; the asker's token, the count it saw and when; a new token, and 1 if
--   the asker trusts a fail-over
local run, history, former, evicted = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local known, seen, seen_at, new_token = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local mark = read_mark(KEYS[1], 'run', 'history', 'evicted', 'token', 'lives')
if not mark then return redis.error_reply(UNREADABLE) end
local lost = ''
if known ~= '' then
  -- The life that the asker knew, where the next one began, and whether an operator has looked since.
  local is_known, is_cleared, least = false, false, mark.count
  for life in string.gmatch(mark.lives or '', '%S+') do
    local name, begun, at, by_operator = string.match(life, '^(%x+)/(%d+)/(%d+)/(%d)$')
    if name == known then
      is_known, is_cleared = true, false
    elseif name then
      if is_known then least = math.min(least, tonumber(begun)) end
      is_cleared = is_cleared or (by_operator == '1' and tonumber(at) >= seen_at)
    end
  end
  if not is_cleared and (not is_known or least < seen) then lost = 'missing' end
end
local is_same = mark.run == run
-- A promoted server names the history it followed; one that was not restarted since writes another than before.
local is_promoted = former ~= '' and mark.run
  and (is_same and history ~= mark.history or not is_same and mark.history == former)
if lost == '' and is_promoted and ARGV[9] ~= '1' then lost = 'promoted' end
-- One who accepts evictions names none.
local noted = is_same and tonumber(mark.evicted) or 0
if lost == '' and is_same and evicted > noted then lost = 'evicted' end

if not is_same or not mark.token then
  mark.lives, mark.token = begin_life(mark, new_token), new_token
  redis.call('HSET', KEYS[1], 'token', mark.token, 'lives', mark.lives)
end
if not is_same or history ~= mark.history or evicted > noted then
  redis.call('HSET', KEYS[1], 'run', run, 'history', history, 'evicted', string.format('%.0f', math.max(noted, evicted)))
end
if lost ~= '' then redis.call('HSET', KEYS[1], 'loss', '1') end
return {now, mark.token, mark.count, lost}
