-- Everything a new node starts from, as of one moment.
-- KEYS: state, log, channels, messages, keys.
-- Returns the state's fields, the bodies of channels, messages and keys, and the entries after the checkpoint. `parts` says
-- how many bodies there should be, and the last field, how many there are.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'tag', 'run', 'saved', 'checkpoint', 'parts', 'version')
if not state[1] then
  return {state, {}, {}, {}, {}}
end
state[9] = redis.call('HLEN', KEYS[3]) .. ' ' .. redis.call('XLEN', KEYS[4]) .. ' ' .. redis.call('XLEN', KEYS[5])
return {
  state,
  redis.call('HVALS', KEYS[3]),
  redis.call('XRANGE', KEYS[4], '-', '+'),
  redis.call('XRANGE', KEYS[5], '-', '+'),
  redis.call('XRANGE', KEYS[2], '(' .. state[5] .. '-0', '+'),
}
