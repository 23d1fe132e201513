-- Renew a node's lease; returns which nodes are alive, and where the log ends.
-- KEYS: state, leases, members, format, loads.
-- ARGV: the node's id, what the others are shown of it (JSON; '' when it leaves), lease in seconds, 1 if it knows of a
-- replica or a Sentinel, the format, the time in the last reply that the node got, the replication id of the run
-- that it is connected to. The format keeps nodes of other releases away: if Redis has lost it, it is written again.
-- Fails if this is another run by now: nodes that append nothing notice it here, and vouch for the log with the others.
-- Returns epoch, sequence, tag, run, version, cluster, founded, replicated, saved, 1 or 0, the time (seconds), how many
-- nodes load (`save.lua`), and a list of what each living node has reported.
-- 1: no living node can be missing: the lease is exactly that of the last report whose reply the node got. If Redis has
-- lost leases since, with this one, a report whose reply was lost may have written it again.
local now = redis.call('TIME')
local time = now[1] + now[2] / 1000000
local ends = string.format('%.6f', time + ARGV[3])
local lease = redis.call('ZSCORE', KEYS[2], ARGV[1])
local known = tonumber(string.format('%.6f', ARGV[6] + ARGV[3]))
-- A lease that ends later than a new one is from before the clock was set back. Its node may have died since; and if the
-- clock was ahead before, others were ended early. So all get the same end, and none is the one that its node knows.
local was_set_back = redis.call('ZCOUNT', KEYS[2], '(' .. ends, '+inf') > 0
local complete = not was_set_back and lease and tonumber(lease) == known and known > time and 1 or 0
-- If Redis is out of memory, it refuses a script whose first write needs memory. This one needs none.
redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[3], ARGV[1])
else
  redis.call('ZADD', KEYS[2], ends, ARGV[1])
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
  for _, id in ipairs(was_set_back and redis.call('ZRANGE', KEYS[2], 0, -1) or {}) do
    redis.call('ZADD', KEYS[2], ends, id)
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', time)) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
if redis.call('HGET', KEYS[1], 'epoch') then
  local info = redis.call('INFO', 'replication')
  if ARGV[4] == '1' or not string.find(info, 'connected_slaves:0', 1, true)
    or not string.find(info, 'second_repl_offset:-1', 1, true) then
    redis.call('HSET', KEYS[1], 'replicated', 1)  -- for good: a replica has it as well
  end
  if not string.find(info, 'master_replid:' .. ARGV[7], 1, true) then
    return {err = 'RUN Redis has another replication id by now'}
  end
  redis.call('SETNX', KEYS[4], ARGV[5])
end
local members = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local member = redis.call('HGET', KEYS[3], id)
  if member then
    members[#members + 1] = member
  else
    complete = 0
  end
end
local reply = redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'tag', 'run', 'version', 'cluster', 'founded', 'replicated', 'saved')
reply[10] = complete
reply[11] = string.format('%.6f', time)
reply[12] = redis.call('ZCOUNT', KEYS[5], now[1], now[1] + 60)
reply[13] = members
return reply
