-- Inserts and swaps, each as if it were alone. No two are about the same record.
-- KEYS: mark; of each move: record, journal, ids, leases, kept; then, of each that has an audit entry, audits
-- ARGV: run, token, the count that was seen, 1 if the server is not to be written to; how many moves; of each:
--   change, id, and
--   insert: state, fence, first duration, second duration (of a reservation: its age), tail
--   others: guard, fence, state, lease, audit entry, then what the change needs
-- Answers the time, the life and its count of writes, and for each move: how it ended, and what stands or why it was
-- refused.
local sub = string.sub
local mark, count = read_mark(KEYS[1], 'run', 'token', 'loss'), tonumber(ARGV[5])
if not mark then return redis.error_reply(UNREADABLE) end
-- Whoever inserts knows which life of the server it writes to, and that nothing it saw is missing.
local is_known = mark.run == ARGV[1] and mark.token == ARGV[2] and mark.count >= tonumber(ARGV[3])
local is_unfit = ARGV[4] == '1'
-- The keys of a move, from its record on.
local function place_of(move) return 5 * move - 3 end
local names = {}
for move = 1, count do names[move] = KEYS[place_of(move)] end
local values = redis.call('MGET', unpack(names))
local created_now = at(now)

-- What is copied from another store is older than its writing.
local function before(millis)
  return at(math.max(now - tonumber(millis), 0))
end
-- The second duration of a reservation is its age.
local function created_of(state, second)
  if state ~= 'r' or second == '0' then return created_now end
  return before(second)
end

local function after(instant, millis)
  if instant == nil or millis == 'never' then return nil end
  return instant + tonumber(millis)
end
-- When a record in this state falls due, and until when it is replayed. Most moves of a script ask for the same.
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

local answers, refused, refusal, written = {now, mark.token or '', 0}, 0, nil, 0
local function answer(move, status, value)
  answers[2 * move + 2], answers[2 * move + 3] = status, value or false
end
local function done(move)
  written = written + 1
  answer(move, 'done')
end
local function refuse(move, why)
  refused, refusal = refused + 1, why
  answer(move, 'refused', why)
end
-- A record is written after its entry in the journal: that is what a full server refuses.
local full = {}
local function noted(move, id, state, due)
  local length = note(KEYS[place_of(move) + 1], id, state, due)
  if type(length) == 'table' then return refuse(move, length.err) end
  if length % FOLD_AT == 0 then full[#full + 1] = move end
  return length
end
local inserted, inserted_by, replaced = {}, {}, {}

local function insert(move, id, argument)
  local there = values[move]
  if there then return answer(move, 'stands', there) end
  if mark.loss then return answer(move, 'loss') end
  if not is_known then return answer(move, 'verify') end
  if is_unfit then return answer(move, 'unfit') end
  local state = ARGV[argument]
  local due, retained = deadlines(state, ARGV[argument + 2], ARGV[argument + 3])
  if not noted(move, id, string.upper(state), due) then return end
  local place = #inserted
  inserted[place + 1] = KEYS[place_of(move)]
  inserted[place + 2] = '1' .. state .. ARGV[argument + 1] .. created_of(state, ARGV[argument + 3]) .. due .. retained .. ARGV[argument + 4]
  inserted_by[#inserted_by + 1] = move
  done(move)
end

local audits = 5 * count + 1
local NEEDS = {note = 1, renew = 1, complete = 3, uncertain = 1, ['take-over'] = 5, remove = 0}
local function swap(move, change, id, argument)
  local there = values[move]
  local audit = ARGV[argument + 4]
  if audit ~= '' then audits = audits + 1 end
  if not there then
    local kind = redis.pcall('GET', KEYS[place_of(move)])
    if type(kind) == 'table' then return refuse(move, kind.err) end
    return answer(move, 'moved')
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
  if not holds then return answer(move, 'moved', there) end

  local first, second = ARGV[argument + 5], ARGV[argument + 6]
  -- Put together once: what a script makes of bytes costs more than anything else it does with them.
  local wanted, due, retained, outcome = nil, nil, nil, ''
  local created, tail = sub(there, 19, 34), sub(there, 67, 74 + length)
  if change == 'remove' then
    -- First, so that room is made where there is none.
    redis.call('DEL', KEYS[place_of(move)])
    wanted, due = 'x', at(0)
  elseif change == 'note' then
    -- The record stays as it is.
  elseif change == 'renew' then
    wanted = 'r'
    due, retained = deadlines('r', first, '')
  elseif change == 'complete' then
    wanted, outcome = 'c', ARGV[argument + 7]
    due, retained = deadlines('c', first, second)
  elseif change == 'uncertain' then
    wanted, due, retained = 'u', at(0), before(first)
  else
    wanted, fence, created, tail = first, second, created_now, ARGV[argument + 9]
    due, retained = deadlines(wanted, ARGV[argument + 7], ARGV[argument + 8])
  end
  if wanted and not noted(move, id, wanted, due) then return end
  if wanted and wanted ~= 'x' then
    local place = #replaced
    replaced[place + 1] = KEYS[place_of(move)]
    replaced[place + 2] = '1' .. wanted .. fence .. created .. due .. retained .. tail .. outcome
  end
  if audit ~= '' then
    redis.call('RPUSH', KEYS[audits], (change == 'note' and before(first) or created_now) .. audit)
    redis.call('LTRIM', KEYS[audits], -1000, -1)
  end
  done(move)
end

local argument = 6
for move = 1, count do
  local change, id = ARGV[argument], ARGV[argument + 1]
  if change == 'insert' then
    insert(move, id, argument + 2)
    argument = argument + 7
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
  fold_or_wait(unpack(KEYS, place_of(move) + 1, place_of(move) + 4))
end
if written > 0 then mark.count = redis.call('HINCRBY', KEYS[1], 'count', written) end
answers[3] = mark.count
if refused == count then return redis.error_reply(refusal) end
return answers
