"""Design 5: one thread accepts; workers take sockets from a queue with two locks (Roussev & Wu §3.4)."""

from __future__ import annotations

import socket

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client, start_workers
from loadtest.roussev.structures.two_lock_queue import TwoLockQueue


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    queue: TwoLockQueue[socket.socket] = TwoLockQueue()

    def work(number: int) -> None:
        while True:
            serve_client(queue.take(), delay)

    start_workers(threads, work)
    while True:
        client, _ = listener.accept()
        queue.put(client)


if __name__ == "__main__":
    command_line.run(serve)
