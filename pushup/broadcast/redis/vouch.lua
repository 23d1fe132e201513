-- Vouch for the log, and see who else does.
-- KEYS: state, members, vouchers. ARGV: the node's id, its voucher (JSON; '' for none).
-- Returns the run that the log is followed in, the ids of the nodes that may be alive, and id and voucher of each node
-- that vouches.
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
end
return {redis.call('HGET', KEYS[1], 'run') or '', redis.call('HKEYS', KEYS[2]), redis.call('HGETALL', KEYS[3])}
