"""`python -m loadtest.roussev.baselines.NAME serve`: starts any design the way PushUp is started."""

from __future__ import annotations

import socket
from collections.abc import Callable

import click

BACKLOG = 1024
"""Enough for all clients of the largest load (700) to connect at once."""


def run(serve: Callable[..., None], *, capacity: int | None = None) -> None:
    """Parse the command line, listen, print the address, and serve until killed.

    `serve`: a design's. `capacity`: of its buffer, unless `--capacity` says otherwise; None if it has none.
    """
    of_design = capacity

    @click.command()
    @click.argument("command", type=click.Choice(["serve"]))
    @click.option("--listen", required=True, help="HOST:PORT; port 0 picks a free port.")
    @click.option("--delay", type=float, default=0.25, show_default=True, help="Seconds of work per client.")
    @click.option("--threads", type=click.IntRange(min=1), default=50, show_default=True, help="Worker threads.")
    @click.option("--capacity", type=click.IntRange(min=1), help="Places of the buffer, in designs that have one.")
    @click.option("--log-level", help="Ignored; accepted because PushUp accepts it.")
    def main(
        command: str, *, listen: str, delay: float, threads: int, capacity: int | None, log_level: str | None
    ) -> None:
        buffer = {} if of_design is None else {"capacity": capacity or of_design}
        host, _, port = listen.rpartition(":")
        with socket.create_server((host, int(port)), backlog=BACKLOG) as listener:
            at = listener.getsockname()
            click.echo(f"{serve.__module__} listens on http://{at[0]}:{at[1]}")
            serve(listener, delay=delay, threads=threads, **buffer)

    main()
