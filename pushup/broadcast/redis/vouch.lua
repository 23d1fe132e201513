-- Vouch for the log, and see who else does.
-- KEYS: state, members, vouchers. ARGV: the node's id, its voucher (JSON; '' for none), the replication id of the run
-- that it is connected to. Fails if this is another run by now: others vouch for that one.
-- All vouchers end 6 s after the first; nodes that still wait (`VOUCH_SECONDS` in `catch_up`) vouch again. One that was
-- kept for longer could be of a node that has followed another server since, and knows more by now.
-- Returns the run that the log is followed in, the ids of the nodes that may be alive, and id and voucher of each node
-- that vouches.
if not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. ARGV[3], 1, true) then
  return {err = 'RUN Redis has another replication id by now'}
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
  local left = redis.call('TTL', KEYS[3])
  if left < 0 or left > 6 then  -- if the clock was set back, it is later than that
    redis.call('EXPIRE', KEYS[3], 6)
  end
end
return {redis.call('HGET', KEYS[1], 'run') or '', redis.call('HKEYS', KEYS[2]), redis.call('HGETALL', KEYS[3])}
