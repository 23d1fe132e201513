"""Mishra & Yang: a group communication service, event-based and thread-based (`python -m loadtest group`).

Members are processes on loopback. Both implementations drive the same protocol; they differ only in how events come to
it.

| file | contents |
|---|---|
| `core/` | the protocol, without threads, sockets or clocks (§2) |
| `service` | the functions that events invoke |
| `requests` | what clients ask of a member |
| `thread_based` | six threads (§3) |
| `event_based` | one event loop (§4) |
| `process` | a member's process |
| `team` | starts a team of them, and gives it updates |
| `complexity` | lines, synchronization objects, states (§5.1) |
| `latency` | Tables 1 to 3 |
| `throughput` | Figures 1 to 3 |
| `trace`, `waits` | what the times of Tables 1 and 2 are made of (`group-waits`) |
| `micro_costs`, `micro_costs.c` | thread switch, lock and unlock, `select` (§5.3) |
| `experiment` | all of these |

PushUp's own cluster does not use it: its nodes share a log in Redis.
"""
