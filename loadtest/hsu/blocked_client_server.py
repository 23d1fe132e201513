"""The server of `blocked-client`: PushUp, with the output buffer (`serve`) or without it (`serve --plain-writes`).

As in the paper, the kernel's send buffer for a connection is 32 kB (Hsu §5.2).
"""

from __future__ import annotations

import socket
from typing import Any

import click

from loadtest.kit.edge import STRATEGIES, EpollDemultiplexer, Watched
from loadtest.kit.server import make_service, read_settings, start_logging

SEND_BUFFER_BYTES = 16 * 1024
"""Linux doubles it, for its own accounting."""


class SmallBuffers(EpollDemultiplexer):
    """A wait strategy that gives each connection the paper's send buffer."""

    def add(self, connection: Watched) -> None:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().add(connection)


class PlainSocket(socket.socket):
    """What Hsu §3.1 warns of: a write blocks the whole server until the kernel has accepted all of its bytes."""

    def send(self, data: Any, flags: int = 0, /) -> int:
        self.setblocking(True)
        self.sendall(data, flags)
        self.setblocking(False)
        return len(data)


class PlainWrites(SmallBuffers):
    """A wait strategy that also makes the writes of each connection blocking."""

    def add(self, connection: Watched) -> None:
        connection.socket = PlainSocket(fileno=connection.socket.detach())
        connection.socket.setblocking(False)
        super().add(connection)


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", required=True)
@click.option("--plain-writes", is_flag=True)
def main(command: str, *, listen: str, log_level: str, plain_writes: bool) -> None:
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    start_logging(log_level, "text")
    STRATEGIES["small buffers"] = PlainWrites if plain_writes else SmallBuffers
    settings = read_settings(flags={"listen": [listen], "wait_strategy": "small buffers"})
    service = make_service(settings, reactor)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    service.startService()
    click.echo(f"PushUp listens on http://{service.addresses[0]}")
    reactor.run()


if __name__ == "__main__":
    main()
