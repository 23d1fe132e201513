"""How the designs with threads serve a client."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from loadtest.roussev.baselines import RESPONSE

CLIENT_SECONDS = 10.0
"""How long a thread waits for a client to send its byte, or to close."""


def serve_client(client: socket.socket, delay: float) -> None:
    """Serve one request. The client closes first, so that it, not the server, enters TIME_WAIT (Roussev & Wu §3)."""
    with client, suppress(OSError):  # one client's connection error does not affect the others
        client.settimeout(CLIENT_SECONDS)
        if client.recv(1):
            time.sleep(delay)
            client.sendall(RESPONSE)
            client.recv(1)


def start_workers(count: int, work: Callable[[int], None]) -> list[Thread]:
    """Start daemon threads that call `work` with their number, from 0 to `count` - 1."""
    threads = [Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads
