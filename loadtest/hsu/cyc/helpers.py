"""What a game server's helpers ask the database and DNS. These calls block; each thread keeps one connection."""

from __future__ import annotations

import threading
from typing import Any

import dns.exception
import dns.resolver
import psycopg

from loadtest.hsu.player_records import DATABASE_USER, HOST, address_of

_here = threading.local()


def games_won(database_port: int, player: int) -> int | None:
    """None if the database does not know the player."""
    row = _database(database_port).execute("SELECT games FROM players WHERE number = %s", [player]).fetchone()
    return None if row is None else int(row[0])


def add_win(database_port: int, player: int) -> None:
    _database(database_port).execute("UPDATE players SET games = games + 1 WHERE number = %s", [player])


def host_name(dns_port: int, player: int) -> str:
    """The name of a player's host; its address if it has none."""
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [HOST], dns_port
    try:
        answer = resolver.resolve_address(address_of(player))
    except dns.exception.DNSException:
        return address_of(player)
    return str(answer[0]).rstrip(".")


def _database(port: int) -> psycopg.Connection[tuple[Any, ...]]:
    connection: psycopg.Connection[tuple[Any, ...]] | None = getattr(_here, "database", None)
    if connection is None or connection.closed:
        connection = _here.database = psycopg.connect(
            host=HOST, port=port, user=DATABASE_USER, dbname="postgres", autocommit=True
        )
    return connection
