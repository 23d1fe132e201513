-- Lay changes over the checkpoint.
-- KEYS: state, log, channels, messages, keys.
-- ARGV: epoch, the checkpoint's sequence so far, the new one, checkpoint (JSON), the first entry that stays in the log,
-- messages ('' for none), the first that is kept, idempotency keys ('' for none), the first that is kept, the number of
-- channels, name and body of each, and names of channels that are forgotten.
-- Returns 1; 0 when somebody else has saved; -1 when a part of the checkpoint is missing.
local function parts()
  return redis.call('HLEN', KEYS[3]) .. ' ' .. redis.call('XLEN', KEYS[4]) .. ' ' .. redis.call('XLEN', KEYS[5])
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'saved', 'parts')
if state[1] ~= ARGV[1] or state[2] ~= ARGV[2] then
  return 0
end
if state[3] ~= parts() then
  return -1
end
-- A Redis that is full refuses a script whose first write needs memory; this one makes room.
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
