"""The one order of many machines, kept in Redis (or Valkey), PushUp §3.4 and §4.4; docs/reliability.md.

Redis carries publications and never polls: each node reads the log and answers its own polls from its own memory.

| file | what is in it |
|---|---|
| `broadcast` | a node at the log: appends, follows, and sees when the log is not the one it followed |
| `log` | the keys in Redis and what is done with them; the `.lua` scripts are its verbs |
| `pending`, `confirmations` | publishers that wait: for their entry's way back, or for more than that |
| `limits` | the settings |
| `epochs` | their names, which have an order |
| `connector`, `address` | where Redis is: a URL, with Sentinels or without |
| `connection` | Redis' protocol, on hiredis |
"""
