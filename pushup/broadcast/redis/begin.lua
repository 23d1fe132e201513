-- Begin a new epoch: no entries and no messages, only channels.
-- KEYS: state, log, channels, messages, keys, vouchers.
-- ARGV: the epoch to replace ('' if there is none), the new one, its time, run, version of the state machine, checkpoint
-- (JSON), then name and body of each channel.
-- Returns 1, or 0 if another node has replaced that epoch.
if (redis.call('HGET', KEYS[1], 'epoch') or '') ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'sequence', 0, 'time', ARGV[3], 'tag', ARGV[2], 'run', ARGV[4],
  'version', ARGV[5], 'saved', 0, 'checkpoint', ARGV[6])
for i = 7, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'parts', redis.call('HLEN', KEYS[3]) .. ' 0 0')
return 1
