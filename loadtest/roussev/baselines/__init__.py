"""Roussev & Wu's seven server designs, and the event-driven one: small servers that all do the same work.

A client connects, sends one byte, and receives 4,000 bytes after a delay that simulates the work: a thread sleeps, the
event-driven design sets a timer. Then the client closes the connection.

| # | file | who serves a client | paper |
|---|---|---|---|
| 1 | `iterative` | the only thread, one client after another | §3.1 |
| 2 | `thread_per_client` | a new thread | §3.1 |
| 3 | `accept_lock` | the worker that holds the lock around `accept` | §3.2 |
| 4 | `shared_buffer` | a worker, through a bounded buffer with one lock | §3.3 |
| 5 | `concurrent_queue` | a worker, through a queue with two locks | §3.4 |
| 6 | `hash_table` | a worker, through a hash table with a lock per slot | §3.5 |
| 7 | `pipes` | a free worker, through its own pipe | §3.6 |
| 8 | `event_driven` | the only thread, all clients concurrently | PushUp's way |

`service` holds what the designs share, `command_line` their command:
`python -m loadtest.roussev.baselines.NAME serve --listen 127.0.0.1:0 --delay 0.25 --threads 50`.
"""

from __future__ import annotations

import socket
from typing import Protocol

RESPONSE = b"x" * 4000


class Design(Protocol):
    """The interface of a design's module."""

    def serve(self, listener: socket.socket, *, delay: float, threads: int) -> None:
        """Serve clients until killed. `delay`: seconds per client; `threads`: workers, in designs with a fixed pool."""
