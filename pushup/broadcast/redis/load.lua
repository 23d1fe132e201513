-- The head of the checkpoint that a node is about to read in pieces; and have saves wait until it has.
-- KEYS: state, rows, loads. ARGV: the node's id, seconds for which saves wait; 0 when it has read all.
-- Returns the state's fields. `rows` says how many rows there should be, and the next to last field, how many there
-- are. The last is the time of the last entry in whole seconds, '' if it is no number.
local now = redis.call('TIME')
local time = now[1] + now[2] / 1000000
redis.pcall('ZREM', KEYS[3], ARGV[1])
if tonumber(ARGV[2]) > 0 then
  -- If Redis takes no writes, it takes no saves either.
  redis.pcall('ZADD', KEYS[3], string.format('%.6f', time + ARGV[2]), ARGV[1])
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'tag', 'run', 'version', 'cluster', 'founded', 'replicated', 'saved',
  'checkpoint', 'rows')
state[12] = tostring(redis.call('HLEN', KEYS[2]))
local written_at = redis.call('HGET', KEYS[1], 'time')
state[13] = written_at and tonumber(written_at) and string.format('%.0f', written_at) or ''
return state
