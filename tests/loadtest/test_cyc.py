"""The CYC game system (Hsu §5.1, Figure 12), with a real PushUp server, PostgreSQL and dnsmasq."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from loadtest.hsu.player_records import DATABASE_USER, DNS, HOST, POSTGRES
from loadtest.hsu.real_servers import real_server
from loadtest.load.servers import Server, running
from pushup.client import Client

pytestmark = pytest.mark.xdist_group("cyc")

KNOWN = range(10)
SERVERS, PLACES = 2, 4
GAME_SECONDS = 60.0

Seat = dict[str, Any]


class System:
    """Figure 12: a coordinator and game servers, beside a PushUp server; `database` and `dns` are ports."""

    def __init__(self, stack: ExitStack, database: int, dns: int) -> None:
        self._database = database
        self.pushup = _url(stack.enter_context(running()))
        at = ("--pushup", self.pushup)
        self._coordinator = _url(stack.enter_context(running(*at, module="loadtest.hsu.cyc.coordinator_server")))
        ports = ("--database", str(database), "--dns", str(dns))
        flags = (*at, *ports, "--coordinator", self._coordinator, "--places", str(PLACES))
        for _ in range(SERVERS):
            stack.enter_context(running(*flags, module="loadtest.hsu.cyc.game_server"))

    def database(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(host=HOST, port=self._database, user=DATABASE_USER, dbname="postgres")

    def find(self) -> str:
        """A game server with a free place."""
        return str(post(self._coordinator, "/find", {})["url"])


def post(url: str, path: str, body: object) -> Any:
    request = urllib.request.Request(url + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def refused(url: str, path: str, body: object) -> tuple[int, str]:
    """The status, and why."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, path, body)
    with caught.value as response:
        return response.code, json.load(response)["detail"]


def play(system: System, places: dict[int, tuple[str, Seat]]) -> dict[int, list[dict[str, Any]]]:
    """Play the games of these players to their ends. Returns what each player was told."""
    with ThreadPoolExecutor(len(places)) as threads:
        told = threads.map(lambda player: _play(system, player, *places[player]), places)
        return dict(zip(places, told, strict=True))


def _play(system: System, player: int, url: str, seat: Seat) -> list[dict[str, Any]]:
    """Take the first free cell whenever it is the player's turn."""
    told: list[dict[str, Any]] = []
    cursor, deadline = "", time.monotonic() + GAME_SECONDS
    with Client(system.pushup) as client:
        while not (told and told[-1].get("over")):
            assert time.monotonic() < deadline
            answer = client.poll(seat["table"], cursor, timeout=5)
            cursor = answer.cursor
            told += [message.data for message in answer.messages]
            taken = [one["cell"] for one in told if "cell" in one]
            if len(told) - len(taken) == 2 and len(taken) % 2 == seat["seat"] and not told[-1].get("over"):
                cell = next(cell for cell in range(9) if cell not in taken)
                post(url, "/move", {"player": player, "table": seat["table"], "cell": cell})
    return told


def _url(server: Server) -> str:
    return f"http://{server.host}:{server.port}"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """Each test leaves it without players."""
    with ExitStack() as stack:
        database, dns = (stack.enter_context(real_server(service, KNOWN)) for service in (POSTGRES, DNS))
        yield System(stack, database, dns)


def test_four_games_on_two_servers(system: System) -> None:
    """The coordinator fills both servers; each table hears its own game, and the database keeps who has won."""
    with system.database() as database:
        database.execute("UPDATE players SET games = 0")
    places: dict[int, tuple[str, Seat]] = {}
    for player in range(SERVERS * PLACES):
        url = system.find()
        places[player] = url, post(url, "/join", {"player": player})
    assert [*map(len, ({url for url, _ in places.values()}, {seat["table"] for _, seat in places.values()}))] == [2, 4]
    with pytest.raises(urllib.error.HTTPError, match="503") as full:
        system.find()
    full.value.close()
    told = play(system, places)
    for player, (_, seat) in places.items():
        joined, moves = told[player][:2], told[player][2:]
        (other,) = {one["joined"] for one in joined} - {player}
        assert told[player] == told[other]
        assert {"joined": player, "host": f"player-{player}.game.test", "won": 0} in joined
        assert [move["cell"] for move in moves] == [0, 1, 2, 3, 4, 5, 6]
        assert moves[-1]["winner"] == (player if seat["seat"] == 0 else other)
    with system.database() as database:
        won = dict(database.execute("SELECT number, games FROM players").fetchall())
    assert won == {player: int(player in places and places[player][1]["seat"] == 0) for player in KNOWN}
    with Client(system.pushup) as client:
        hall = [sum(message.data.values()) for message in client.poll("hall", timeout=0).messages]
    assert (max(hall), hall[-1]) == (SERVERS * PLACES, 0)


def test_who_may_play(system: System) -> None:
    """A player must be known, sit at the table, wait for the other one and for the turn, and take a free cell."""
    url = system.find()
    for _ in range(PLACES + 1):  # a stranger takes no place
        assert refused(url, "/join", {"player": 99}) == (403, "there is no player 99")
    seat = post(url, "/join", {"player": 1})
    assert refused(url, "/join", {"player": 1}) == (400, "you play here already")
    move = {"player": 1, "table": seat["table"], "cell": 4}
    assert refused(url, "/move", move) == (400, "wait until the other player has joined")
    other = post(url, "/join", {"player": 2})
    assert refused(url, "/move", {**move, "player": 3}) == (403, "you do not play at this table")
    assert refused(url, "/move", {**move, "player": 2}) == (400, "it is the other player's turn")
    post(url, "/move", move)
    assert refused(url, "/move", {**move, "player": 2}) == (400, "cell 4 is not free")
    assert refused(url, "/move", {"player": "one"})[0] == 400
    assert refused(url, "/nothing", {})[0] == 404
    play(system, {1: (url, seat), 2: (url, other)})


def test_a_database_that_hangs_holds_up_nobody_else(system: System) -> None:
    """While players wait for the database, two others play on the same server, and hear of it."""
    url = system.find()
    seats = [post(url, "/join", {"player": player}) for player in (1, 2)]
    table = seats[0]["table"]
    with ThreadPoolExecutor(2) as threads, Client(system.pushup) as client:
        with system.database() as database:
            database.execute("LOCK TABLE players")
            waiting = [threads.submit(post, url, "/join", {"player": player}) for player in (3, 4)]
            for number, cell in enumerate((0, 4, 8)):
                post(url, "/move", {"player": 1 + number % 2, "table": table, "cell": cell})
            moves = [message.data for message in client.poll(table, timeout=0).messages[2:]]
            assert [one["cell"] for one in moves] == [0, 4, 8]
            assert not any(one.done() for one in waiting)
        seats += [one.result() for one in waiting]
    play(system, {player: (url, seat) for player, seat in enumerate(seats, 1)})
