-- Instants have sixteen digits, so that a record's head has one length; all nines are never reached.
local NEVER = '9999999999999999'
local function at(millis)
  if millis == nil then return NEVER end
  return string.format('%016d', millis)
end
local function after(instant, millis)
  if instant == nil or millis == 'never' then return nil end
  return instant + tonumber(millis)
end
-- When a record in this state falls due, and until when it is replayed.
local function deadlines(state, first, second)
  if state == 'r' then return after(now, first), at(0) end
  local retained = after(now, first)
  return after(retained, second), at(retained)
end
