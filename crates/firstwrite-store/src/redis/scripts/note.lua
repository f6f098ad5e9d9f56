-- Notes which history a server writes; it takes another name when its first replica comes.
-- KEYS: mark
-- ARGV: run, history
local base, is_doubted, run, token = read_mark(redis.call('GET', KEYS[1]))
if base and run == ARGV[1] then
  redis.call('SET', KEYS[1], spell_mark(base, is_doubted, run, token, ARGV[2]))
end
return 1
