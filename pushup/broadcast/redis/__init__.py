"""The broadcast of many machines: a log in Redis or Valkey (PushUp §3.4 and §4.4; docs/internals/reliability.md).

Redis carries publications, never polls: each node reads the log and answers its own polls from its own memory.

| file | what it defines |
|---|---|
| `redis_broadcast` | the broadcast that a node sees; joins the parts below |
| `session` | connects, follows the log and appends to it; reconnects after a failure |
| `recovery` | what a node does when it has connected, e.g. if Redis has lost entries: a decision, without I/O |
| `catch_up` | finds out the situation, and carries out what `recovery` decides |
| `differences` | says which settings of the other nodes differ |
| `durability` | whether a restart of Redis loses nothing |
| `replica` | applies entries; notices one that does not follow the last (`Diverged`) |
| `heartbeat` | four times a second: lease, members, whether reading is stuck |
| `lease` | until when a node may say that there is nothing else |
| `leader` | what one node does for all, such as saving the checkpoint |
| `acknowledgements` | publishers that wait for their entry, or for it to be replicated or stable |
| `log`, `scripts` | the keys in Redis and the operations on them; the atomic ones are Lua scripts |
| `records` | what is read, and how much at a time |
| `checkpoint_loader` | reads the checkpoint and the entries after it, in pieces |
| `append.lua` | appends a command to the log |
| `begin.lua` | begins a new epoch |
| `load.lua` | reads the head of the checkpoint, and has saves wait until its parts were read |
| `mark.lua` | writes a mark, so that WAIT covers everything in the log |
| `new_cluster.lua` | gives the log to a cluster of another name (`pushup new-cluster`) |
| `report.lua` | renews a node's lease, and lists the living nodes |
| `save.lua` | brings the checkpoint up to date, and trims the log |
| `switch.lua` | appends an entry that changes how the log is followed |
| `vouch.lua` | after a restart of Redis: who has found all that it knows in the log |
| `connector` | finds Redis, with or without Sentinels |
| `redis_connection`, `redis_errors` | Redis' protocol, on hiredis; error replies and other failures as types |
| `redis_metrics` | what a node sees of Redis, for `/metrics` |
| `redis_settings` | the settings, and the URL |
"""
