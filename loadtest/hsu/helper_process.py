"""A helper process as in Hsu §4.3, Figures 8 to 10: an acceptor, a queue of sockets, workers, and a service handler.

It speaks HTTP, so that PushUp reaches it through its service requestor: `--set authorize_url=http://...`. The acceptor
thread accepts connections and queues them; each worker takes one, reads the request, has the handler serve it, answers,
and closes the connection. As many requests as come wait in the queue; no more than there are workers reach the service.
"""

from __future__ import annotations

import importlib
import socket
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import click

from loadtest.kit.edge import open_socket

BACKLOG = 4096
"""Connections that the kernel keeps for the acceptor."""

READ_BYTES = 8 * 1024
CLIENT_SECONDS = 10.0
"""How long a worker waits for the request of a connection."""

ALLOWED = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ServiceHandler(Protocol):
    """The interface of a service's handler (the paper's `handle_service`)."""

    def __call__(self, channels: tuple[str, ...], headers: dict[str, str], /) -> bool:
        """Whether a client may poll these channels; may block."""


class HelperProcess:
    """The queue, and the threads that share it."""

    def __init__(self, listener: socket.socket, handler: ServiceHandler, *, workers: int) -> None:
        self._listener = listener
        self._handler = handler
        self._sockets: SimpleQueue[socket.socket] = SimpleQueue()
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def run(self) -> None:
        """Start the workers, and accept connections until the process is killed."""
        for worker in self._workers:
            worker.start()
        while True:
            client, _ = self._listener.accept()
            self._sockets.put(client)

    def _work(self) -> None:
        while True:
            with self._sockets.get() as client, suppress(OSError):  # a client that has gone harms nobody else
                client.settimeout(CLIENT_SECONDS)
                head = b""
                while b"\r\n\r\n" not in head and (data := client.recv(READ_BYTES)):
                    head += data
                if head:
                    client.sendall(ALLOWED if self._handler(_channels(head), {}) else DENIED)


def _channels(head: bytes) -> tuple[str, ...]:
    """The channels of a request's target."""
    _, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    return tuple(parse_qs(urlsplit(target).query)["channel"])


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", hidden=True)
@click.option("--handler", required=True, help="package.module:function")
@click.option("--workers", default=20, show_default=True)
def main(command: str, *, listen: str, log_level: str | None, handler: str, workers: int) -> None:
    module, _, name = handler.partition(":")
    listener = open_socket(listen)
    listener.setblocking(True)
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    click.echo(f"Server listens on http://{host}:{port}")
    HelperProcess(listener, getattr(importlib.import_module(module), name), workers=workers).run()


if __name__ == "__main__":
    main()
