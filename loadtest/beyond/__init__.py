"""Experiments that are in no paper.

| file | contents | results |
|---|---|---|
| `peers` | the same work on PushUp and on Nchan | docs/lab/performance.md |
| `nchan` | starts Nchan, for those that compare with it | |
| `headline/` | PushUp, Nchan, and the least that a server can do, loaded from C | docs/lab/performance.md |
| `capacity` | what the formula for operators says of some loads, and what they cost | docs/operate/capacity.md |
| `raw_events` | streams with `format=raw` and with JSON | docs/lab/performance.md |
| `far_away` | long polls and event streams at a round trip of 80 ms | docs/lab/performance.md |
| `stalls`, `stalls_client` | the longest turn of the reactor of a node that has much to do | docs/lab/performance.md |
| `stalls_server`, `stalls_probe` | the server of that experiment, which times its turns | |
| `pushback` | a flood of publications beside other clients | docs/lab/performance.md |
| `soak` | an hour in which clients and channels come and go | docs/lab/performance.md |
| `journal`, `journal_one_each` | the cost of writing to disk first, in groups or one by one | docs/lab/performance.md |
| `redis_delay` | the cost of keeping the order in Redis | docs/lab/evaluation.md |
| `kills` | repeated kill -9 of a server with a journal, under load: is anything lost? | docs/lab/performance.md |
| `cluster_kills/` | a thousand faults of a cluster under load, judged | docs/lab/cluster-faults.md |
| `browsers/` | pushup.js in three browsers while something fails: is anything lost? | docs/lab/browsers.md |
| `workers/` | several worker processes: cost, balance, limits; what is lost when they die | docs/lab/performance.md |
| `append_only` | what a Redis comes back with that has lost the end of its file, or only its last save | |
"""
