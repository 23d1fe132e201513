-- Give the log to a cluster of another name, unless a node is alive.
-- KEYS: state, leases. ARGV: the new name.
-- Returns the former name; '' if there is no log, and 0 if a node is alive.
local now = redis.call('TIME')[1]
-- A lease ends within 3 s. One that ends later is from before the clock was set back, and nobody may be left to end it.
if redis.call('ZCOUNT', KEYS[2], now, now + 4) > 0 then
  return 0
end
if not redis.call('HGET', KEYS[1], 'epoch') then
  return ''
end
local former = redis.call('HGET', KEYS[1], 'cluster') or ''
redis.call('HSET', KEYS[1], 'cluster', ARGV[1])
return former
