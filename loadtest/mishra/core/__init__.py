"""The protocol, without threads, sockets or clocks.

| file | contents |
|---|---|
| `member` | a member: decisions and the rotation of the decider, suspicion, joining, the four timeouts |
| `messages` | the wire format |
| `clock` | clock synchronization |
| `ordering` | which updates get ordinals, and in what order |
| `history` | the order as a member knows it, and the updates it holds |
| `repair` | what to ask for, and what to send again |
| `stability` | how far each member holds everything |
| `delivery` | what may be delivered: three orders, three atomicities |
| `termination` | what became of own updates |
| `membership` | who wants to join; calls for a new view |
| `formation` | a new view from what its members know |
| `effects` | what a member asks of its driver |
| `settings` | the team and the times |
"""
