-- Asks a server whether what was acknowledged is still there, and notes which life of it this is.
-- KEYS: mark, news, lives
-- ARGV: run, history, former history, the asker's token, the newest it saw, a new token, trusts a fail-over
local base, is_doubted, run, token, history = read_mark(redis.call('GET', KEYS[1]))
if not base then return redis.error_reply(UNREADABLE) end
local n = base + redis.call('LLEN', KEYS[2])
local lost = ''
if ARGV[4] ~= '' then
  -- The life that the asker knew, and where each one after it began.
  local is_known, is_cleared, least = false, false, n
  for _, life in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
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
if lost == '' and run and run ~= ARGV[1] and history == ARGV[3] and ARGV[7] ~= '1' then
  lost = 'promoted'
end
local is_another = run ~= ARGV[1] or not token
if is_another then
  run, token, history = ARGV[1], ARGV[6], ARGV[2]
  redis.call('RPUSH', KEYS[3], token .. ' ' .. string.format('%.0f', n) .. ' 0')
  redis.call('LTRIM', KEYS[3], -64, -1)
end
if is_another or lost ~= '' then
  redis.call('SET', KEYS[1], spell_mark(base, is_doubted or lost ~= '', run, token, history))
end
return {token, n, lost}
