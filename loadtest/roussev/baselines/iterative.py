"""Design 1: one thread serves one client after another (Roussev & Wu §3.1). The baseline for the other designs."""

from __future__ import annotations

import socket

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    while True:
        client, _ = listener.accept()
        serve_client(client, delay)


if __name__ == "__main__":
    command_line.run(serve)
