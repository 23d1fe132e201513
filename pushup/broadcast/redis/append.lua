-- Append a command with the next sequences.
-- KEYS: state, log. ARGV: epoch, tag, width (how many sequences), command (JSON), the replication id of the run of Redis
-- that the epoch is followed in.
-- Returns the last sequence, or 0 if the log is in another epoch, or this is another run.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'time', 'tag')
if state[1] ~= ARGV[1] or not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. ARGV[5], 1, true) then
  return 0
end
local now = redis.call('TIME')
local time = string.format('%.6f', math.max(now[1] + now[2] / 1000000, tonumber(state[3])))
local last = string.format('%.0f', state[2] + ARGV[3])
redis.call('XADD', KEYS[2], last .. '-0', 'time', time, 'after', state[4], 'tag', ARGV[2], 'command', ARGV[4])
redis.call('HSET', KEYS[1], 'sequence', last, 'time', time, 'tag', ARGV[2])
return tonumber(last)
