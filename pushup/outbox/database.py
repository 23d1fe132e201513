"""Connections by a URL, and a relay that runs as a process."""

from __future__ import annotations

import logging
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import unquote

from pushup.client import Client
from pushup.outbox.relay import RETRY_SECONDS, Relay
from pushup.outbox.rows import Connection

LISTEN_SECONDS = 1.0
"""How often the one who listens looks whether the relay was stopped."""

POSTGRES_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,  # seconds, as the next two
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""A PostgreSQL whose machine is gone is given up within 15 s; TCP would wait for 15 min, and in a query for hours."""

_log = logging.getLogger("pushup.outbox")


def connector(url: str) -> Callable[[], Connection]:
    """What opens a connection to postgresql://USER@HOST/NAME or sqlite:///PATH; a driver in the scheme is ignored.

    Raises: ValueError if it is another database, no URL, one of SQLite with options, or its driver is missing.
    """
    scheme, separator, rest = url.partition("://")
    _, mark, options = rest.partition("?")
    match scheme.partition("+")[0]:
        case "sqlite" if mark:
            raise ValueError(f"remove ?{options} from the URL of the database: the relay takes no options for SQLite")
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            return partial(sqlite3.connect, unquote(rest[1:]))
        case "postgresql" | "postgres" if separator:
            try:
                import psycopg
            except ImportError:
                raise ValueError("the driver for PostgreSQL is missing: pip install 'psycopg[binary]'") from None
            try:
                given = psycopg.conninfo.conninfo_to_dict(f"postgresql://{rest}")
            except psycopg.ProgrammingError as error:
                raise ValueError(f"not a URL of PostgreSQL: {error}") from None
            return partial(psycopg.connect, **{**POSTGRES_OPTIONS, **given})
    raise ValueError(
        f"{scheme!r} is not the URL of a database with an outbox; use postgresql://USER@HOST/NAME or sqlite:///PATH"
    )


def run(connect: Callable[[], Connection], client: Client, *, listen: bool = False) -> None:
    """Run a relay until SIGTERM or SIGINT, and log to standard error. `listen`: to PostgreSQL, as well."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    relay = Relay(connect, client)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: relay.stop())
    if listen:
        threading.Thread(target=poke_on_notify, args=(connect, relay), daemon=True).start()
    relay.run()


def poke_on_notify(connect: Callable[[], Connection], relay: Relay) -> None:
    """Poke the relay at each NOTIFY of PostgreSQL, until the relay is stopped. `connect` must use psycopg 3.

    While this cannot connect, the relay still looks for rows by itself.
    """
    trouble = ""
    while not relay.is_stopped:
        try:
            with closing(connect()) as connection:
                connection.autocommit = True
                connection.execute("LISTEN pushup_outbox")
                while not relay.is_stopped:
                    relay.poke()
                    for _ in connection.notifies(timeout=LISTEN_SECONDS, stop_after=1):
                        pass
        except Exception as error:  # whatever the driver raises
            if str(error) != trouble:
                _log.warning("cannot listen for new rows now, and try again each second; %s", error)
            trouble = str(error)
            time.sleep(RETRY_SECONDS)
