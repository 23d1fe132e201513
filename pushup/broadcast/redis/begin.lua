-- Begin a new epoch: no entries, only rows, which have been put into a key of their own before.
-- KEYS: state, log, rows, vouchers, new rows, format.
-- ARGV: the epoch to replace ('' if there is none), the new one, its time, run, version of the state machine, checkpoint
-- (JSON), the number of rows, cluster, the sequence before its first entry, the format, the tag of the last entry in the log
-- ('' for any).
-- Fails if the log has another format by now. Returns 1, or 0 if another node has replaced that epoch, if an entry has come
-- since, or if the new rows are not all there. In another run than the caller's it notes that of the caller: then nobody
-- follows the epoch before all have vouched for it. No loss stays unknown, for a new epoch tells everybody.
local format = redis.call('GET', KEYS[6])
if format and format ~= ARGV[10] then
  return {err = 'FORMAT the message log has format ' .. format}
end
local state = redis.call('HMGET', KEYS[1], 'epoch', 'tag', 'founded', 'replicated')
if (state[1] or '') ~= ARGV[1] or redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[7])
  or ARGV[11] ~= '' and state[2] ~= ARGV[11] then
  redis.call('UNLINK', KEYS[5])
  return 0
end
local now = redis.call('TIME')
local founded = string.format('%.6f', now[1] + now[2] / 1000000)
if ARGV[8] ~= ARGV[2] then  -- the cluster is named by another epoch
  founded = state[3] or 0
end
redis.call('UNLINK', unpack(KEYS, 1, 4))  -- as DEL, but large ones are freed in another thread
if ARGV[7] ~= '0' then
  redis.call('RENAME', KEYS[5], KEYS[3])
  redis.call('PERSIST', KEYS[3])
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'sequence', ARGV[9], 'time', ARGV[3], 'tag', ARGV[2], 'run', ARGV[4],
  'version', ARGV[5], 'cluster', ARGV[8], 'founded', founded, 'saved', ARGV[9], 'checkpoint', ARGV[6], 'rows', ARGV[7])
if state[4] then
  redis.call('HSET', KEYS[1], 'replicated', 1)
end
redis.call('SET', KEYS[6], ARGV[10])
return 1
