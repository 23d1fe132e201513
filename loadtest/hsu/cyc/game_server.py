"""A game server: it seats players at tables of two, judges their moves, and has PushUp tell the table."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from typing import Any

import click
from msgspec import Struct

from loadtest.hsu.cyc.board import Board
from loadtest.hsu.cyc.helpers import add_win, games_won, host_name
from loadtest.hsu.cyc.json_server import DEADLINE_SECONDS, JsonCalls, Peer, serve
from loadtest.kit.framework import BackendCounters, BadRequest, Forbidden, HelperPool, Overloaded, ServiceLimits

PLACES = 1000
"""Players that one of the paper's game servers can have."""

HELPER_THREADS = 5
SEATS = 2


class Join(Struct):
    player: int


class Move(Struct):
    player: int
    table: str
    cell: int


class Table:
    def __init__(self, name: str) -> None:
        self.name = name
        self.players: list[int] = []
        self.board = Board()


class GameServer:
    """`helpers`: pools for the database and for DNS, which are limited services of their own (Hsu, Figure 11)."""

    def __init__(
        self, url: str, pushup: Peer, coordinator: Peer, database: HelperPool, dns: HelperPool, ports: tuple[int, int],
        places: int,
    ) -> None:  # fmt: skip
        self._url = url
        self._pushup, self._coordinator = pushup, coordinator
        self._database, self._dns = database, dns
        self._database_port, self._dns_port = ports
        self._places = places
        self._players = 0
        self._numbers = count(1)
        self._tables: dict[str, Table] = {}
        self._open: Table | None = None
        self.calls = JsonCalls({"/join": (Join, self.join), "/move": (Move, self.move)})

    async def join(self, join: Join) -> object:
        """A seat at a table, and the channel to follow. Raises: PushUpError."""
        if self._players >= self._places:
            raise Overloaded("this game server is full", retry_after=10)
        self._players += 1  # the place is taken while the helpers ask
        try:
            won = await self._database.call(games_won, self._database_port, join.player)
            if won is None:
                raise Forbidden(f"there is no player {join.player}")
            host = await self._dns.call(host_name, self._dns_port, join.player)
            if any(join.player in table.players for table in self._tables.values()):
                raise BadRequest("you play here already")
        except Exception:
            self._players -= 1
            await self.report()
            raise
        table = self._seat(join.player)
        await self._pushup.publish(table.name, {"joined": join.player, "host": host, "won": won})
        await self.report()
        return {"table": table.name, "seat": table.players.index(join.player)}

    async def move(self, move: Move) -> object:
        """Raises: PushUpError."""
        table = self._tables.get(move.table)
        if table is None or move.player not in table.players:
            raise Forbidden("you do not play at this table")
        if len(table.players) < SEATS:
            raise BadRequest("wait until the other player has joined")
        board = table.board
        board.move(table.players.index(move.player), move.cell)
        winner = None if board.winner is None else table.players[board.winner]
        told = {"moved": move.player, "cell": move.cell, "over": board.is_over, "winner": winner}
        if board.is_over:
            del self._tables[table.name]
            self._players -= SEATS
        await self._pushup.publish(table.name, told)
        if board.is_over:
            if winner is not None:
                await self._database.call(add_win, self._database_port, winner)
            await self.report()
        return told

    def _seat(self, player: int) -> Table:
        table = self._open
        if table is None:
            # The port makes the name of a table different from those of other game servers.
            table = self._open = Table(f"table-{self._url.rpartition(':')[2]}-{next(self._numbers)}")
            self._tables[table.name] = table
        else:
            self._open = None
        table.players.append(player)
        return table

    async def report(self) -> None:
        await self._coordinator.post("/report", {"url": self._url, "players": self._players, "places": self._places})


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", hidden=True)
@click.option("--pushup", required=True, help="URL of the PushUp server.")
@click.option("--coordinator", required=True, help="URL of the coordinator.")
@click.option("--database", required=True, type=int, help="Port of PostgreSQL.")
@click.option("--dns", required=True, type=int, help="Port of the DNS server.")
@click.option("--places", default=PLACES, show_default=True)
def main(
    command: str, *, listen: str, log_level: str | None, pushup: str, coordinator: str, database: int, dns: int,
    places: int,
) -> None:  # fmt: skip
    def make(reactor: Any, url: str) -> tuple[JsonCalls, Coroutine[Any, Any, None]]:
        limits = ServiceLimits(at_most=HELPER_THREADS, queue_limit=places, deadline_seconds=DEADLINE_SECONDS)
        database_pool, dns_pool = (
            HelperPool(name, limits, reactor=reactor, counters=BackendCounters()) for name in ("database", "DNS")
        )
        server = GameServer(
            url, Peer(pushup, reactor), Peer(coordinator, reactor), database_pool, dns_pool, (database, dns), places
        )
        return server.calls, server.report()

    serve(listen, make)


if __name__ == "__main__":
    main()
