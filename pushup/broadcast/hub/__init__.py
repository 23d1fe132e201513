"""The broadcast of one machine with several worker processes: the parent has the order, and the workers follow it.

| file | what it defines |
|---|---|
| `hub` | the parent's side: follows a broadcast (memory, journal), passes each entry on, hands the state over |
| `worker_broadcast` | the worker's side: what a worker's node sees |
| `pending_commands` | a worker's commands, until their outcomes are known |
| `frames` | what they say to each other |

A worker's command goes to the parent, which appends it to its broadcast; the entry comes back to all workers. The
worker that sent the command applies the entry like the others, and then answers its publisher: so the publisher is
acknowledged by the node that it asked.
"""
