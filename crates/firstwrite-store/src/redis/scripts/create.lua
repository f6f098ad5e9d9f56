-- Notes that a store was created under this prefix; answers with the version that was there, if one was.
-- KEYS: store
-- ARGV: version
local found = redis.call('GET', KEYS[1])
if found then return found end
redis.call('SET', KEYS[1], ARGV[1])
return ''
