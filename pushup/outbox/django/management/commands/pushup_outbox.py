"""`manage.py pushup_outbox PUSHUP_URL...`: the relay, with a database of the settings."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from pushup.client import Client, ClientError
from pushup.outbox.database import POSTGRES_OPTIONS, run
from pushup.outbox.rows import Connection


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Publish the messages of the outbox, until SIGTERM. The publish key is in PUSHUP_KEY."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", nargs="+", help="URLs of PushUp's nodes, such as http://127.0.0.1:8080")
        parser.add_argument("--database", default="default")
        parser.add_argument("--listen", action="store_true", help="publish at once what PostgreSQL notifies of")

    def handle(self, *_: Any, url: list[str], database: str, listen: bool, **__: Any) -> None:
        of_application = connections[database]
        try:
            client = Client(url, os.environ.get("PUSHUP_KEY"))
        except (ValueError, ClientError) as error:
            raise CommandError(error) from None
        run(lambda: _connect(of_application), client, listen=listen)


def _connect(of_application: Any) -> Connection:
    """As the application does, with `assume_role` and the receivers of `connection_created`."""
    wrapper = of_application.copy()
    wrapper.settings_dict["AUTOCOMMIT"] = True  # the relay begins its transactions itself
    options = wrapper.settings_dict["OPTIONS"]
    options.pop("pool", None)  # it closes its connections, and returns none
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"] = {**POSTGRES_OPTIONS, **options}
    try:
        wrapper.connect()
    except BaseException:
        wrapper.close()
        raise
    return wrapper.connection
