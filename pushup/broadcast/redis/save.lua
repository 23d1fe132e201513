-- Bring the checkpoint up to date.
-- KEYS: state, log, rows, loads.
-- ARGV: epoch, the checkpoint's present sequence, its new one, checkpoint (JSON), the first entry to keep in the log, the
-- number of changed rows, key and body of each, and keys of removed rows.
-- Returns 1; 0 if another node has saved since, or one is reading the checkpoint; -1 if a part of it is missing.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'saved', 'rows', 'checkpoint')
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then
  return 0
end
-- A node that loads renews its lease. One that lasts longer than leases do is from before the clock was set back.
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
if redis.call('ZCOUNT', KEYS[4], now, now + 60) > 0 then
  return 0
end
if tonumber(state[3]) ~= redis.call('HLEN', KEYS[3]) or string.match(state[4] or '', '"sequence":(%d+)') ~= state[2] then
  return -1
end
-- If Redis is out of memory, it refuses a script whose first write needs memory. This one frees some.
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[5])
local changed_end = 6 + 2 * ARGV[6]
for i = changed_end + 1, #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
end
for i = 7, changed_end, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'saved', ARGV[3], 'checkpoint', ARGV[4], 'rows', redis.call('HLEN', KEYS[3]))
return 1
