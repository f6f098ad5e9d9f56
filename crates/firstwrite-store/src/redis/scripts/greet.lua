-- Asks a server whether what was acknowledged is still there, and notes which life of it this is.
-- KEYS: mark, lives
-- ARGV: run, history, former history, the asker's token, the newest it saw, a new token, trusts a fail-over
local mark = redis.call('HMGET', KEYS[1], 'n', 'run', 'token', 'history')
local n, token = tonumber(mark[1] or '0'), mark[3]
local lost = ''
if ARGV[4] ~= '' then
  -- The life that the asker knew, and where each one after it began.
  local is_known, is_cleared, least = false, false, n
  for _, life in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local name, start, cleared = string.match(life, '^(%S+) (%d+) (%d)$')
    if name == ARGV[4] then
      is_known, is_cleared, least = true, false, n
    elseif name then
      is_cleared = is_cleared or cleared == '1'
      least = math.min(least, tonumber(start))
    end
  end
  if not is_cleared and (not is_known or least < tonumber(ARGV[5])) then lost = 'missing' end
end
if lost == '' and mark[2] and mark[2] ~= ARGV[1] and mark[4] == ARGV[3] and ARGV[7] ~= '1' then
  lost = 'promoted'
end
if mark[2] ~= ARGV[1] or not token then
  token = ARGV[6]
  redis.call('HSET', KEYS[1], 'n', string.format('%.0f', n), 'run', ARGV[1], 'token', token, 'history', ARGV[2])
  redis.call('RPUSH', KEYS[2], token .. ' ' .. string.format('%.0f', n) .. ' 0')
  redis.call('LTRIM', KEYS[2], -64, -1)
end
if lost ~= '' then redis.call('HSETNX', KEYS[1], 'doubt', at(now)) end
return {token, n, lost}
