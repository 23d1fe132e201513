-- Append an entry that changes how the log is followed, if it ends where the caller thinks; and note the change beside it.
-- KEYS: state, log, vouchers. ARGV: the tag of the last entry, the tag of this one, command (JSON), then name and value of
-- each field of the state that changes with it.
-- Returns 1, or 0 if there is another entry by now.
-- In another run than the caller's, too, the log may still end there: whoever goes on in that run changes the tag. The run
-- beside the entry is the caller's then, or an earlier one, so nobody goes on before all have vouched for this one.
local state = redis.call('HMGET', KEYS[1], 'sequence', 'time', 'tag')
if state[3] ~= ARGV[1] then
  return 0
end
local now = redis.call('TIME')
local time = string.format('%.6f', math.max(now[1] + now[2] / 1000000, tonumber(state[2])))
local last = string.format('%.0f', state[1] + 1)
redis.call('XADD', KEYS[2], last .. '-0', 'time', time, 'after', state[3], 'tag', ARGV[2], 'command', ARGV[3])
redis.call('HSET', KEYS[1], 'sequence', last, 'time', time, 'tag', ARGV[2], unpack(ARGV, 4))
redis.call('DEL', KEYS[3])
return 1
