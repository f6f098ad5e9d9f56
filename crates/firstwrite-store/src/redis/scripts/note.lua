-- Notes which history a server writes; it takes another name when its first replica comes.
-- KEYS: mark
-- ARGV: run, history
if redis.call('HGET', KEYS[1], 'run') == ARGV[1] then redis.call('HSET', KEYS[1], 'history', ARGV[2]) end
return 1
