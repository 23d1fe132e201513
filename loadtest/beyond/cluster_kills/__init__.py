"""Faults of a cluster under load, with much in it: does it keep what it promises?

Each round starts a cluster, with tens of thousands of messages in it, publishers and subscribers; causes faults of one
kind; and has the checker of docs/internals/histories.md judge what the clients were told.

| file | contents |
|---|---|
| `rounds` | the kinds of faults, and a round of one of them |
| `faults` | faults of nodes, links, clocks, disks and HAProxy |
| `redis_faults` | Redis comes back with less than it had |
| `scene` | the cluster that faults happen to, and whether it is live again |
| `stage` | starts it, with the data that is there from the beginning |
| `clients` | publishers and subscribers, which write the history |
| `requests` | their requests |
| `redis` | a Redis of which the data is put back |
| `links` | the links to Redis, which can be stopped in one direction |
| `clocks`, `shifted_clock.c` | clocks of single processes that jump |
| `experiment` | the whole run, and its table |
"""
