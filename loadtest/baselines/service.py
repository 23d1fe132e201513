"""What all designs do for a client, where a thread may wait for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from loadtest.baselines import RESPONSE

CLIENT_SECONDS = 10.0
"""So long a thread waits for a client's byte, or for its end."""


def serve_client(client: socket.socket, delay: float) -> None:
    """One request, start to end. The client closes first, so that TIME_WAIT is on its side (Roussev & Wu §3)."""
    with client, suppress(OSError):  # that client is gone; there are others
        client.settimeout(CLIENT_SECONDS)
        if client.recv(1):
            time.sleep(delay)
            client.sendall(RESPONSE)
            client.recv(1)


def start_workers(count: int, work: Callable[[int], None]) -> list[Thread]:
    """Threads 0 to count - 1, each of which works until the server ends."""
    threads = [Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads
