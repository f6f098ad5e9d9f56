-- What is known of a shard, as one value: how many writes it had taken when its news were last worked in (sixteen
-- digits), whether it is in doubt (`d`, otherwise `-`), in which start and life of its server, and by which history.
-- A dash stands for what is not known. Each write since is one entry of its news.
local function read_mark(mark)
  if not mark then return 0, false end
  local base, doubt, run, token, history = string.match(mark, '^(%d+) (%S) (%S+) (%S+) (%S+)$')
  if not base then return nil end
  local function known(word) return word ~= '-' and word or nil end
  return tonumber(base), doubt == 'd', known(run), known(token), known(history)
end
local function spell_mark(base, is_doubted, run, token, history)
  local words = {at(base), is_doubted and 'd' or '-', run or '-', token or '-', history or '-'}
  for place = 3, 5 do if words[place] == '' then words[place] = '-' end end
  return table.concat(words, ' ')
end
local UNREADABLE = 'CORRUPT a mark has an unknown form'
