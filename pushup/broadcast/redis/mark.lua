-- Write something, so that a WAIT by the same connection covers everything that the log contains now.
-- KEYS: state. Returns epoch, sequence, tag, run, version, cluster, founded and replicated of the log's end.
redis.call('HINCRBY', KEYS[1], 'waits', 1)
return redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'tag', 'run', 'version', 'cluster', 'founded', 'replicated')
