-- Instants have sixteen digits, so that a record's head has one length; all nines are never reached.
local NEVER = '9999999999999999'
local function at(millis)
  if millis == nil then return NEVER end
  return string.format('%016d', millis)
end
