"""Connections by a URL, and a relay that runs as a process."""

from __future__ import annotations

import logging
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from urllib.parse import unquote

from pushup.client import Client
from pushup.outbox.relay import Relay
from pushup.outbox.rows import Connection


def connector(url: str) -> Callable[[], Connection]:
    """What opens a connection to postgresql://USER@HOST/NAME or sqlite:///PATH; a driver in the scheme is ignored.

    Raises: ValueError if it is another database, or its driver is missing.
    """
    scheme, separator, rest = url.partition("://")
    match scheme.partition("+")[0]:
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            return partial(sqlite3.connect, unquote(rest[1:]))
        case "postgresql" | "postgres" if separator:
            try:
                import psycopg
            except ImportError:
                raise ValueError("the driver for PostgreSQL is missing: pip install 'psycopg[binary]'") from None
            return partial(psycopg.connect, f"postgresql://{rest}", connect_timeout=5)
    raise ValueError(
        f"{scheme!r} is not the URL of a database with an outbox; use postgresql://USER@HOST/NAME or sqlite:///PATH"
    )


def run(connect: Callable[[], Connection], client: Client) -> None:
    """Run a relay until SIGTERM or SIGINT, and log to standard error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    relay = Relay(connect, client)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: relay.stop())
    relay.run()
