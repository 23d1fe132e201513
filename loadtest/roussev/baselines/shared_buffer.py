"""Design 4: one thread accepts; workers take sockets from a bounded buffer with one lock (Roussev & Wu §3.3)."""

from __future__ import annotations

import socket

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client, start_workers
from loadtest.roussev.structures.shared_buffer import SharedBuffer

CAPACITY = 101
"""As in the paper's Table 1."""


def serve(listener: socket.socket, *, delay: float, threads: int, capacity: int = CAPACITY) -> None:
    buffer: SharedBuffer[socket.socket] = SharedBuffer(capacity)

    def work(number: int) -> None:
        while True:
            serve_client(buffer.take(), delay)

    start_workers(threads, work)
    while True:
        client, _ = listener.accept()
        buffer.put(client)


if __name__ == "__main__":
    command_line.run(serve, capacity=CAPACITY)
