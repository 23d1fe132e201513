"""Experiments that are in no paper.

| file | contents | results |
|---|---|---|
| `peers` | the same work on PushUp and on Nchan | docs/performance.md |
| `nchan` | starts Nchan, for those that compare with it | |
| `headline/` | PushUp, Nchan, and the least that a server can do, loaded from C | docs/performance.md |
| `far_away` | long polls and event streams at a round trip of 80 ms | docs/performance.md |
| `stalls`, `stalls_client` | the longest turn of the reactor when a node has much to do at once | docs/performance.md |
| `stalls_server`, `stalls_probe` | the server of that experiment, which times its turns | |
| `journal`, `journal_one_each` | the cost of writing to disk first, in groups or one by one | docs/performance.md |
| `redis_delay` | the cost of keeping the order in Redis | docs/evaluation.md |
| `kills` | repeated kill -9 of a server with a journal, under load: is anything lost? | docs/performance.md |
| `cluster_kills/` | a thousand faults of a cluster under load, judged | docs/reliability.md |
| `browsers/` | pushup.js in three browsers while something fails: is anything lost? | docs/client.md |
| `workers/` | several worker processes: cost, balance, limits; what is lost when they die | docs/performance.md |
| `append_only` | what a Redis comes back with that has lost the end of its file, or only its last save | |
"""
