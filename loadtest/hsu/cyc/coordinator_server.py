"""The coordinator: it knows the game servers and how many players each has, and finds a place for a player."""

from __future__ import annotations

from typing import Any

import click
from msgspec import Struct

from loadtest.hsu.cyc.json_server import JsonCalls, Peer, serve
from loadtest.kit.framework import Overloaded

HALL = "hall"
"""The channel on which everybody is told how many play where."""


class Load(Struct):
    """What a game server reports."""

    url: str
    players: int
    places: int


class Coordinator:
    def __init__(self, pushup: Peer) -> None:
        self._pushup = pushup
        self._loads: dict[str, Load] = {}
        self.calls = JsonCalls({"/report": (Load, self.report), "/find": (dict, self.find)})

    async def report(self, load: Load) -> object:
        self._loads[load.url] = load
        await self._pushup.publish(HALL, {one.url: one.players for one in self._loads.values()})
        return {}

    async def find(self, _: object) -> object:
        """The game server with free places that has the fewest players. Raises: Overloaded."""
        free = [load for load in self._loads.values() if load.players < load.places]
        if not free:
            raise Overloaded("every game server is full", retry_after=10)
        return {"url": min(free, key=lambda load: load.players).url}


@click.command()
@click.argument("command", type=click.Choice(["serve"]))
@click.option("--listen", required=True)
@click.option("--log-level", hidden=True)
@click.option("--pushup", required=True, help="URL of the PushUp server.")
def main(command: str, *, listen: str, log_level: str | None, pushup: str) -> None:
    def make(reactor: Any, url: str) -> tuple[JsonCalls, None]:
        return Coordinator(Peer(pushup, reactor)).calls, None

    serve(listen, make)


if __name__ == "__main__":
    main()
