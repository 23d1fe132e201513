"""Design 3: every worker accepts its own clients; a lock admits one worker to `accept` (Roussev & Wu §3.2)."""

from __future__ import annotations

import socket
from threading import Lock

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client, start_workers


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    lock = Lock()

    def work(number: int) -> None:
        while True:
            with lock:
                client, _ = listener.accept()
            serve_client(client, delay)

    for worker in start_workers(threads, work):
        worker.join()


if __name__ == "__main__":
    command_line.run(serve)
