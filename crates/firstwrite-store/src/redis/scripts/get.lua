-- What stands, and the time.
-- KEYS: record
return {now, redis.call('GET', KEYS[1])}
