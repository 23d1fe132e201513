-- Give the log to a cluster of another name, unless a node is alive.
-- KEYS: state, leases. ARGV: the new name.
-- Returns the former name; '' if there is no log, and 0 if a node is alive.
local now = redis.call('TIME')
if #redis.call('ZRANGEBYSCORE', KEYS[2], now[1], '+inf') > 0 then
  return 0
end
if not redis.call('HGET', KEYS[1], 'epoch') then
  return ''
end
local former = redis.call('HGET', KEYS[1], 'cluster') or ''
redis.call('HSET', KEYS[1], 'cluster', ARGV[1])
return former
