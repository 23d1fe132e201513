"""The server of `blocked-client`: PushUp, with the output buffer (`serve`) or without it (`serve --plain-writes`).

As in the paper the kernel's send buffer of a connection has 32 kB (Hsu §5.2).
"""

from __future__ import annotations

import socket
from typing import Any

import click

from pushup.net.connection import Connection
from pushup.net.edge import Edge
from pushup.service import make_service
from pushup.settings import read_settings

SEND_BUFFER_BYTES = 16 * 1024
"""Linux makes twice as much of it, for its own accounting, too."""


class SmallBuffer(Connection):
    """A connection as PushUp has it, with the paper's send buffer."""

    __slots__ = ()

    def __init__(self, edge: Edge, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().__init__(edge, sock)


class PlainWrites(SmallBuffer):
    """What Hsu §3.1 warns of: a write waits until the kernel has taken all of it, and everybody waits with it."""

    __slots__ = ()

    def _write(self, data: bytes) -> bool:
        self.socket.setblocking(True)
        try:
            self.socket.sendall(data)
        except OSError:
            self.lost()
            return False
        self.socket.setblocking(False)
        return True


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", required=True)
@click.option("--plain-writes", is_flag=True)
def main(command: str, *, listen: str, log_level: str, plain_writes: bool) -> None:
    from twisted.internet import reactor as any_reactor

    from pushup.logs import start_logging

    reactor: Any = any_reactor
    start_logging(log_level, "text")
    settings = read_settings(flags={"listen": [listen]})
    service = make_service(settings, reactor, connect=PlainWrites if plain_writes else SmallBuffer)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    service.startService()
    click.echo(f"PushUp listens on http://{service.addresses[0]}")
    reactor.run()


if __name__ == "__main__":
    main()
