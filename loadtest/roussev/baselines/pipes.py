"""Design 7: one thread accepts, and hands each socket to a free worker through that worker's pipe (Roussev & Wu §3.6).

The paper's best design. Workers wait only for the accepting thread, which never blocks on a write: the pipe of a free
worker is empty.
"""

from __future__ import annotations

import socket

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client, start_workers
from loadtest.roussev.structures.free_workers import FreeWorkers
from loadtest.roussev.structures.pipe import Pipe


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    pipes: list[Pipe[socket.socket]] = [Pipe() for _ in range(threads)]
    workers = FreeWorkers(threads)

    def work(number: int) -> None:
        while True:
            workers.free(number)
            serve_client(pipes[number].read(), delay)

    start_workers(threads, work)
    while True:
        client, _ = listener.accept()
        worker, _ = workers.take(0)
        pipes[worker].write(client)


if __name__ == "__main__":
    command_line.run(serve)
