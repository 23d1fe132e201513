-- Bring the checkpoint up to date.
-- KEYS: state, log, channels, messages, keys, loads.
-- ARGV: epoch, the checkpoint's present sequence, its new one, checkpoint (JSON), the first entry to keep in the log,
-- messages ('' for none), the first to keep, idempotency keys ('' for none), the first to keep, the number of changed
-- channels, name and body of each, and names of forgotten channels.
-- Returns 1; 0 if another node has saved since, or one is reading the checkpoint; -1 if a part of it is missing.
local function parts()
  return redis.call('HLEN', KEYS[3]) .. ' ' .. redis.call('XLEN', KEYS[4]) .. ' ' .. redis.call('XLEN', KEYS[5])
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'saved', 'parts', 'checkpoint')
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then
  return 0
end
-- A node that loads renews its lease. One that lasts longer than leases do is from before the clock was set back.
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', now)
if redis.call('ZCOUNT', KEYS[6], now, now + 60) > 0 then
  return 0
end
if state[3] ~= parts() or string.match(state[4] or '', '"sequence":(%d+)') ~= state[2] then
  return -1
end
-- If Redis is out of memory, it refuses a script whose first write needs memory. This one frees some.
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[5])
local id = ARGV[3] .. '-0'
if ARGV[6] ~= '' then
  redis.call('XADD', KEYS[4], id, 'body', ARGV[6])
end
redis.call('XTRIM', KEYS[4], 'MINID', ARGV[7])
if ARGV[8] ~= '' then
  redis.call('XADD', KEYS[5], id, 'body', ARGV[8])
end
redis.call('XTRIM', KEYS[5], 'MINID', ARGV[9])
local channels_end = 10 + 2 * ARGV[10]
for i = 11, channels_end, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
for i = channels_end + 1, #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
end
redis.call('HSET', KEYS[1], 'saved', ARGV[3], 'checkpoint', ARGV[4], 'parts', parts())
return 1
