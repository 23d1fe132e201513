"""The same echo on PushUp's own demultiplexer, with either of its wait strategies: how do they compare?

`python -m loadtest.libman.pushup_server serve --listen HOST:PORT --wait NAME`. The demultiplexer reads for a
connection, as an emulated proactor does, but into buffers of its own, and leaves writing to the connection.
"""

from __future__ import annotations

import socket
from typing import Any

import click

from loadtest.kit.edge import STRATEGIES, Demultiplexer, Listener, OutputBudget, OutputBuffer, Watched, open_socket
from loadtest.load.servers import raise_file_limit

NEVER_REACHED = 1 << 30
"""Limit of an output buffer. It holds one read at most, as nothing is read while it holds anything."""


_budget = OutputBudget(NEVER_REACHED, lambda: None)


class Echo:
    """A connection that sends back what it receives."""

    def __init__(self, demultiplexer: Demultiplexer, sock: socket.socket, read_bytes: int) -> None:
        self.socket = sock
        self.read_bytes = read_bytes
        self._demultiplexer = demultiplexer
        self._output: OutputBuffer | None = None
        demultiplexer.add(self)

    def received(self, data: bytes) -> None:
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.lost()
            return
        if sent < len(data):
            self._output = OutputBuffer(self, NEVER_REACHED, _budget)
            self._output.append(data, sent)
            self._demultiplexer.want(self, reading=False, writing=True)

    def writable(self) -> None:
        if self._output is None:
            return
        try:
            self._output.write(self.socket.send)
        except OSError:
            self.lost()
            return
        if not self._output.size:
            self._output.discard()
            self._output = None
            self._demultiplexer.want(self, reading=True, writing=False)

    def ended(self) -> None:
        self.lost()

    def lost(self) -> None:
        if self.socket.fileno() >= 0:
            self._demultiplexer.remove(self)
            self.socket.close()
            if self._output is not None:
                self._output.discard()
                self._output = None


_check: type[Watched] = Echo


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--wait", type=click.Choice(list(STRATEGIES)), required=True)
@click.option("--buffer-bytes", type=click.IntRange(min=1), default=1024)
@click.option("--log-level", help="Ignored; accepted because PushUp accepts it.")
def main(command: str, *, listen: str, wait: str, buffer_bytes: int, log_level: str | None) -> None:
    """Echo until killed."""
    from twisted.internet import reactor as any_reactor

    reactor: Any = any_reactor
    raise_file_limit()
    demultiplexer = STRATEGIES[wait](reactor)
    demultiplexer.start()

    def accepted(sock: socket.socket) -> None:
        Echo(demultiplexer, sock, buffer_bytes)

    listener = Listener(open_socket(listen), reactor=reactor, clock=reactor, accepted=accepted)
    listener.start()
    click.echo(f"the echo server listens on http://{listener.address}")
    reactor.run()


if __name__ == "__main__":
    main()
