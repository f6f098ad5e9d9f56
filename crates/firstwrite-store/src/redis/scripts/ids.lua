-- Ids in their order, and what is not yet in the index.
-- KEYS: ids, journal
-- ARGV: where to begin, limit
return {
  redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2]),
  redis.call('LRANGE', KEYS[2], 0, -1)
}
