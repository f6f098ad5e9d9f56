-- Inserts and swaps, each as if it were alone. No two are about the same record.
-- KEYS: of each move: record, mark, news, ids, leases, kept; then, of each that has an audit entry, audits
-- ARGV: run, how many moves; of each: change, id, and
--   insert: token, seen, state, fence, first duration, second duration, tail
--   others: guard, fence, state, lease, audit entry, then what the change needs
-- Answers the time, and for each move: how it ended, the count of writes, and what stands or why it was refused.
local sub = string.sub
local run, count = ARGV[1], tonumber(ARGV[2])
local names = {}
for move = 1, count do
  names[move], names[count + move] = KEYS[6 * move - 5], KEYS[6 * move - 4]
end
local values = redis.call('MGET', unpack(names))
local created_now = at(now)

local function after(instant, millis)
  if instant == nil or millis == 'never' then return nil end
  return instant + tonumber(millis)
end
-- When a record in this state falls due, and until when it is replayed. Most moves of a flight ask for the same.
local asked = {}
local function deadlines(state, first, second)
  local name = state .. first .. ' ' .. second
  local both = asked[name]
  if not both then
    local retained = after(now, first)
    both = state == 'r' and {at(retained), at(0)} or {at(after(retained, second)), at(retained)}
    asked[name] = both
  end
  return both[1], both[2]
end

local answers, refused, refusal = {now}, 0, nil
local function answer(move, status, n, value)
  answers[3 * move - 1], answers[3 * move], answers[3 * move + 1] = status, n, value or false
end
local function refuse(move, why)
  refused, refusal = refused + 1, why
  answer(move, 'refused', 0, why)
end
-- A record is written after its entry in the news: that is what a full server refuses.
local full = {}
local function noted(move, id, state, due)
  local length = note(KEYS[6 * move - 3], id, state, due)
  if type(length) == 'table' then return refuse(move, length.err) end
  if length % FOLD_AT == 0 then full[#full + 1] = move end
  return length
end
-- How many writes the shard had taken when its news were last worked in. Nil if that cannot be said.
local function base_of(move)
  local mark = values[count + move]
  if mark then return tonumber(sub(mark, 1, 16)) end
  -- None yet, or a key of another kind.
  if type(redis.pcall('GET', KEYS[6 * move - 4])) ~= 'table' then return 0 end
end
local function answer_unmoved(move, status, value)
  local base, length = base_of(move), redis.pcall('LLEN', KEYS[6 * move - 3])
  if not base or type(length) == 'table' then return refuse(move, 'CORRUPT a shard cannot be read') end
  answer(move, status, base + length, value)
end

local inserted, inserted_by, replaced = {}, {}, {}

local function insert(move, id, argument)
  local there = values[move]
  if there then return answer_unmoved(move, 'stands', there) end
  local token, seen, state = ARGV[argument], ARGV[argument + 1], ARGV[argument + 2]
  -- Whoever writes knows which life of the server it writes to, and that nothing it saw is missing.
  local mark, life, base = values[count + move], run .. ' ' .. token .. ' ', base_of(move)
  if not mark or not base or sub(mark, 20, 19 + #life) ~= life then return answer(move, 'greet', 0) end
  if sub(mark, 18, 18) == 'd' then return answer_unmoved(move, 'doubt') end
  local due, retained = deadlines(state, ARGV[argument + 4], ARGV[argument + 5])
  local length = noted(move, id, string.upper(state), due)
  if not length then return end
  if base + length - 1 < tonumber(seen) then
    redis.call('RPOP', KEYS[6 * move - 3])
    return answer(move, 'greet', base + length - 1)
  end
  local place = #inserted
  inserted[place + 1] = KEYS[6 * move - 5]
  inserted[place + 2] = '1' .. state .. ARGV[argument + 3] .. created_now .. due .. retained .. ARGV[argument + 6]
  inserted_by[#inserted_by + 1] = move
  answer(move, 'done', base + length)
end

local audits = 6 * count
local NEEDS = {renew = 1, complete = 3, uncertain = 0, ['take-over'] = 5, remove = 0}
local function swap(move, change, id, argument)
  local there = values[move]
  local audit = ARGV[argument + 4]
  if audit ~= '' then audits = audits + 1 end
  if not there then
    local kind = redis.pcall('GET', KEYS[6 * move - 5])
    if type(kind) == 'table' then return refuse(move, kind.err) end
    return answer_unmoved(move, 'moved')
  end
  local length = tonumber(sub(there, 67, 74), 16)
  if sub(there, 1, 1) ~= '1' or not length or #there < 74 + length then
    return refuse(move, 'CORRUPT a record has an unknown form')
  end
  local state, fence, lease = sub(there, 2, 2), sub(there, 3, 18), sub(there, 35, 50)
  local holds = fence == ARGV[argument + 1]
  if ARGV[argument] == 'owner' then
    holds = holds and state ~= 'c'
  else
    holds = holds and state == ARGV[argument + 2] and (state ~= 'r' or lease == ARGV[argument + 3])
  end
  if change == 'renew' and state ~= 'r' then holds = false end
  if not holds then return answer_unmoved(move, 'moved', there) end
  local base = base_of(move)
  if not base then return refuse(move, 'CORRUPT a mark has an unknown form') end

  local first, second = ARGV[argument + 5], ARGV[argument + 6]
  -- Put together once: what a script makes of bytes costs more than anything else it does with them.
  local wanted, due, retained, outcome = nil, nil, nil, ''
  local created, tail = sub(there, 19, 34), sub(there, 67, 74 + length)
  if change == 'remove' then
    -- First, so that room is made where there is none.
    redis.call('DEL', KEYS[6 * move - 5])
    wanted, due = 'x', at(0)
  elseif change == 'renew' then
    wanted = 'r'
    due, retained = deadlines('r', first, '')
  elseif change == 'complete' then
    wanted, outcome = 'c', ARGV[argument + 7]
    due, retained = deadlines('c', first, second)
  elseif change == 'uncertain' then
    wanted, due, retained = 'u', at(0), at(0)
  else
    wanted, fence, created, tail = first, second, created_now, ARGV[argument + 9]
    due, retained = deadlines(wanted, ARGV[argument + 7], ARGV[argument + 8])
  end
  local length = noted(move, id, wanted, due)
  if not length then return end
  if wanted ~= 'x' then
    local place = #replaced
    replaced[place + 1] = KEYS[6 * move - 5]
    replaced[place + 2] = '1' .. wanted .. fence .. created .. due .. retained .. tail .. outcome
  end
  if audit ~= '' then
    redis.call('RPUSH', KEYS[audits], created_now .. audit)
    redis.call('LTRIM', KEYS[audits], -1000, -1)
  end
  answer(move, 'done', base + length)
end

local argument = 3
for move = 1, count do
  local change, id = ARGV[argument], ARGV[argument + 1]
  if change == 'insert' then
    insert(move, id, argument + 2)
    argument = argument + 9
  else
    swap(move, change, id, argument + 2)
    argument = argument + 7 + NEEDS[change]
  end
end

-- One that cannot be inserted now is a key of another kind, which is not seen above.
if inserted[1] and redis.call('MSETNX', unpack(inserted)) == 0 then
  for place, move in ipairs(inserted_by) do
    if not redis.call('SET', inserted[2 * place - 1], inserted[2 * place], 'NX') then
      refuse(move, 'CORRUPT a record is no string')
    end
  end
end
if replaced[1] then redis.call('MSET', unpack(replaced)) end
for _, move in ipairs(full) do
  fold_or_wait(unpack(KEYS, 6 * move - 4, 6 * move))
end
if refused == count then return redis.error_reply(refusal) end
return answers
