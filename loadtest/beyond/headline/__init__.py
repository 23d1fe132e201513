"""The tables at the top of docs/lab/performance.md: what PushUp, Nchan and two minimal servers take for the same work.

The load comes from a program in C, which is compiled when it is needed: Python is slower than Nchan.

| file | contents |
|---|---|
| `experiment` | the work, the rounds, and what becomes a table |
| `processor_time` | the work of the main table, and what it costs each server |
| `other_tables` | memory, delays, clients that do not read, and unused channels |
| `servers` | starts the servers, and knows their requests |
| `generator` | runs `load.c` |
| `load.c` | subscribers and publishers; counts and checks what is delivered |
| `limit.c` | a server that copies prepared bytes |
| `bare_server` | the same in Python |
"""
