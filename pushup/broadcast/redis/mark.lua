-- Write something: a WAIT by the same connection then covers everything that the log contains now. If Redis takes no
-- publications (it is full, or a replica), it refuses this as well.
-- KEYS: state. Returns epoch, sequence, tag, run, version, cluster, founded and replicated of the log's end.
redis.call('HSET', KEYS[1], 'waits', 1)
return redis.call('HMGET', KEYS[1], 'epoch', 'sequence', 'tag', 'run', 'version', 'cluster', 'founded', 'replicated')
