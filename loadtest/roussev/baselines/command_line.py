"""`python -m loadtest.roussev.baselines.NAME serve`: starts any design the way PushUp is started."""

from __future__ import annotations

import socket
from typing import Protocol

import click

BACKLOG = 1024
"""Enough for all clients of the largest load (700) to connect at once."""


class Serve(Protocol):
    def __call__(self, listener: socket.socket, *, delay: float, threads: int) -> None: ...


def run(serve: Serve) -> None:
    """Parse the command line, listen, print the address, and serve until killed."""

    @click.command()
    @click.argument("command", type=click.Choice(["serve"]))
    @click.option("--listen", required=True, help="HOST:PORT; port 0 picks a free port.")
    @click.option("--delay", type=float, default=0.25, show_default=True, help="Seconds of work per client.")
    @click.option("--threads", type=click.IntRange(min=1), default=50, show_default=True, help="Worker threads.")
    @click.option("--log-level", help="Ignored; accepted because PushUp accepts it.")
    def main(command: str, *, listen: str, delay: float, threads: int, log_level: str | None) -> None:
        host, _, port = listen.rpartition(":")
        with socket.create_server((host, int(port)), backlog=BACKLOG) as listener:
            at = listener.getsockname()
            click.echo(f"{serve.__module__} listens on http://{at[0]}:{at[1]}")
            serve(listener, delay=delay, threads=threads)

    main()
