"""The echo server's process: `python -m loadtest.libman.server serve --listen HOST:PORT --engine NAME --wait NAME`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

import click

from loadtest.libman.channel import Engine
from loadtest.libman.engines.emulated import EmulatedProactor
from loadtest.libman.engines.pooled import PooledProactor
from loadtest.libman.engines.reactor import Reactor
from loadtest.libman.engines.uring import UringProactor
from loadtest.libman.handlers import EchoServerProtocol, ReactiveAcceptor
from loadtest.libman.wait.strategies import STRATEGIES
from loadtest.load.servers import raise_file_limit

BACKLOG = 4096
"""Connections that may wait to be accepted; the client opens all of its own at once."""

ENGINES = ("reactor", "emulated", "uring")


class EchoServer(NamedTuple):
    """An engine that echoes on all connections of a listener: what makes a turn of it, and what ends it."""

    turn: Callable[[float | None], None]
    close: Callable[[], None]


def echo(listener: socket.socket, *, engine: str, wait: str, threads: int, buffer_bytes: int) -> EchoServer:
    """Set up an echo server. The strategy is ignored by `uring`, which needs none.

    Raises: OSError if there is no io_uring. ValueError if a reactor is to have threads.
    """
    if engine == "reactor":
        if threads:
            raise ValueError("a reactor calls its handlers itself, it has no threads for them")
        strategy = STRATEGIES[wait]()
        reactor = Reactor(strategy)
        ReactiveAcceptor(reactor, listener, buffer_bytes, drains=strategy.edge_triggered)
        return EchoServer(reactor.turn, reactor.close)
    proactor: Engine = UringProactor() if engine == "uring" else EmulatedProactor(STRATEGIES[wait]())
    if threads:
        proactor = PooledProactor(proactor, threads)
    proactor.listen(listener, lambda sock: EchoServerProtocol(proactor, sock, buffer_bytes).start())
    return EchoServer(proactor.turn, proactor.close)


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True, help="HOST:PORT; port 0 picks a free port.")
@click.option("--engine", type=click.Choice(ENGINES), required=True)
@click.option("--wait", type=click.Choice(list(STRATEGIES)), default="poll", help="How reactor and emulated wait.")
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Threads that handlers are called in; 0: none.")
@click.option("--buffer-bytes", type=click.IntRange(min=1), default=1024, help="Size of each connection's buffer.")
@click.option("--log-level", help="Ignored; accepted because PushUp accepts it.")
def main(
    command: str, *, listen: str, engine: str, wait: str, threads: int, buffer_bytes: int, log_level: str | None
) -> None:
    """Echo until killed."""
    raise_file_limit()
    host, _, port = listen.rpartition(":")
    with socket.create_server((host, int(port)), backlog=BACKLOG) as listener:
        # So have its connections: else an answer waits until the one before is acknowledged, up to 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = echo(listener, engine=engine, wait=wait, threads=threads, buffer_bytes=buffer_bytes)
        at = listener.getsockname()
        click.echo(f"the echo server listens on http://{at[0]}:{at[1]}")
        while True:
            server.turn(None)


if __name__ == "__main__":
    main()
