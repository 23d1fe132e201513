"""Design 2: a new thread for each client (Roussev & Wu §3.1, "concurrent server")."""

from __future__ import annotations

import socket
from threading import Thread

from loadtest.roussev.baselines import command_line
from loadtest.roussev.baselines.service import serve_client


def serve(listener: socket.socket, *, delay: float, threads: int) -> None:
    while True:
        client, _ = listener.accept()
        try:
            Thread(target=serve_client, args=(client, delay), daemon=True).start()
        except RuntimeError:  # the system cannot start another thread, so refuse this client
            client.close()


if __name__ == "__main__":
    command_line.run(serve)
