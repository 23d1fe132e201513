"""Roussev & Wu's seven server designs, and the event-driven one, each a small server with the same service.

A client connects, sends one byte, and gets 4,000 bytes after a delay that stands for the work: blocking work where a
thread does it, a timer in the event-driven design. Then the client closes.

| # | file | who serves a client | paper |
|---|---|---|---|
| 1 | `iterative` | the one thread, one client after the other | §3.1 |
| 2 | `thread_per_client` | a new thread | §3.1 |
| 3 | `accept_lock` | the worker that holds the lock around `accept` | §3.2 |
| 4 | `shared_buffer` | a worker, through a bounded buffer with one lock | §3.3 |
| 5 | `concurrent_queue` | a worker, through a queue with two locks | §3.4 |
| 6 | `hash_table` | a worker, through a hash table with a lock at each slot | §3.5 |
| 7 | `pipes` | a free worker, through its own pipe | §3.6 |
| 8 | `event_driven` | the one thread, all clients at once | PushUp's way |

`thread_per_request` is another thing: PushUp's multithreaded long polling (§4), a thread for each held request.

`service` is what the designs share, `command_line` their `python -m loadtest.baselines.NAME serve --listen 127.0.0.1:0
--delay 0.25 --threads 50`.
"""

from __future__ import annotations

import socket
from typing import Protocol

RESPONSE = b"x" * 4000


class Design(Protocol):
    """What a design's file offers."""

    def serve(self, listener: socket.socket, *, delay: float, threads: int) -> None:
        """Serve clients for ever. `delay` in seconds; `threads`: workers, where the design has a number of them."""
