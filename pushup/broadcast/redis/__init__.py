"""An order for many machines, kept in Redis or Valkey (PushUp §3.4 and §4.4; docs/reliability.md).

Redis carries publications, never polls: each node reads the log and answers its own polls from its own memory.

| file | what it is |
|---|---|
| `broadcast` | one node at the log: appends, follows, and notices when the log is no longer the one it followed |
| `log` | the keys in Redis and the operations on them, each of which is a script |
| `append.lua` | appends commands to the log |
| `begin.lua` | begins a new epoch |
| `load.lua` | reads the checkpoint and the entries after it |
| `mark.lua` | writes a mark, so that WAIT covers everything in the log |
| `report.lua` | renews this node's lease, and lists the other nodes |
| `save.lua` | adds changes to the checkpoint and trims the log |
| `pending` | publishers that wait for their own entry to be read back |
| `confirmations` | publishers that wait for more: for a replica, or for all nodes |
| `limits` | the settings |
| `epochs` | the names of epochs, which are ordered |
| `connector`, `address` | find Redis: by URL, directly or through Sentinels |
| `connection` | the Redis protocol, on hiredis |
"""
