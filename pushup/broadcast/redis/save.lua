-- Bring the checkpoint up to date.
-- KEYS: state, log, rows, loads.
-- ARGV: epoch, the checkpoint's present sequence, its new one, checkpoint (JSON), the first entry to keep in the log, 1 to
-- leave no byte of those before it, the number of changed rows, key and body of each, and keys of removed rows.
-- Returns 1; 0 if another node has saved since, or one is reading the checkpoint; -1 if a part of it is missing; 2 if bytes
-- of earlier entries may be left.
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
local swept = 1
if ARGV[6] == '1' and redis.call('XLEN', KEYS[2]) > 100 then
  swept = 2
elseif ARGV[6] == '1' then
  -- Redis keeps the bytes of a trimmed entry while its block of the stream has others. By default, a block has at most 100
  -- entries and, unless it is one, 4 KB. If there is more, the first block is complete, and soon goes as a whole.
  local kept, size = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 100), 0
  for _, entry in ipairs(kept) do
    size = size + #entry[2][#entry[2]]
  end
  if size > 65536 then
    swept = 2
  elseif #kept > 0 then
    redis.call('DEL', KEYS[2])
    for _, entry in ipairs(kept) do
      redis.call('XADD', KEYS[2], entry[1], unpack(entry[2]))
    end
  end
end
local changed_end = 7 + 2 * ARGV[7]
for i = changed_end + 1, #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
end
for i = 8, changed_end, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'saved', ARGV[3], 'checkpoint', ARGV[4], 'rows', redis.call('HLEN', KEYS[3]))
return swept
