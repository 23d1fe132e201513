"""The tables at the top of docs/lab/performance.md, tiny; and what the load in C notices."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadtest.beyond.headline import experiment, servers
from loadtest.beyond.headline.generator import Work, run
from loadtest.beyond.headline.processor_time import faults, works
from loadtest.beyond.headline.servers import MinimalRequests, Target
from loadtest.everything import PLAN

pytestmark = pytest.mark.xdist_group("headline")

TINY = experiment.Sizes(
    few=40, many=60, polls=300, rate=200.0, others=(0, 150), warm=0.05, seconds=0.15, rounds=1, memory_rounds=1
)

*_, SPREAD = (work for work in works(TINY.few, TINY.many, TINY.rate) if work.is_browser)
WORKS = [SPREAD, works()[-1]]
"""Polls and publications; the other tables have fan-outs."""

MESSAGE = "@@{number},{place},1,{padding}"


def test_every_table_can_be_made() -> None:
    """Each server does each work; everything is received, once and in order; and each table has a figure for each."""
    form, _ = servers.fastest_pushup()
    found = {name: start for name, start in servers.servers().items() if name not in servers.pushups() or name == form}
    tables = {table.name: table for table in experiment.measure(TINY, WORKS, found)}
    assert {*tables} == {*PLAN["headline"].writes}
    assert "".join(table.failed for table in tables.values()) == ""
    names = [*found]
    assert [column.removesuffix(" us") for column in tables["headline"].columns if column.endswith(" us")] == names
    assert [row[0] for row in tables["headline"].rows] == [work.name for work in WORKS]
    assert all(len(row) == len(tables["headline"].columns) for row in tables["headline"].rows)
    rates = [float(row[3]) for row in tables["headline-runs"].rows]
    assert len(rates) == len(WORKS) * len(names)
    assert all(rates)
    held = {str(row[1]): float(row[2]) for row in tables["headline-memory"].rows if row[0] == "a held poll"}
    assert 200 < held[form] < 20_000
    assert all(float(value) > 0 for row in tables["headline-delay"].rows for value in row[1:])
    assert [row[0] for row in tables["headline-stalled"].rows] == [0, 0]
    assert [row[0] for row in tables["headline-channels"].rows] == [0, 150]


def test_several_publishers_of_a_channel() -> None:
    """Only without subscribers, who check an order that several publishers do not have."""
    _, start = servers.fastest_pushup()
    with start() as target:
        measured = run(target, Work("", 0, 8, window=64, publishers=64), seconds=0.3, warm=0.1)
        assert measured.acknowledgements > 64
        with pytest.raises(RuntimeError, match="could not connect"):
            run(target, Work("", 8, 8, window=64, publishers=64), seconds=0.3)


def test_clients_that_never_read_are_not_waited_for() -> None:
    """Nor counted."""
    _, start = servers.fastest_pushup()
    with start() as target:
        measured = run(target, Work("", 10, rate=50, size=16_000, stalled=3), seconds=0.3, warm=0.1)
    assert (measured.published, measured.delivered) == (20, 20 * 7)
    assert (measured.lost, measured.repeated) == (0, 0)


@pytest.mark.parametrize(
    ("places", "lost", "repeated"),
    [
        ([1, 2, 3, 4], 0, 0),
        ([1, 2, 4], 1, 0),  # the third is missing, which the fourth shows
        ([1, 2, 3], 1, 0),  # the fourth never comes
        ([1, 2, 2, 3, 4], 0, 1),
        ([1, 3, 2, 4], 1, 1),  # out of order: missing first, and late afterwards
    ],
)
def test_the_load_notices_what_a_server_does_wrong(places: list[int], lost: int, repeated: int) -> None:
    """With a server that answers the only subscriber with these messages of the four that are published."""
    with _faulty(places) as target:
        measured = run(target, Work("", 1, rate=20), seconds=0.1, warm=0.1, drain=0.3)
    assert measured.published == 4
    assert (measured.lost, measured.repeated) == (lost, repeated)
    assert bool(faults(Work("", 1), measured)) == bool(lost or repeated)


def test_the_load_ends_at_a_response_that_it_does_not_expect() -> None:
    """Instead of measuring refusals."""
    with _faulty([], status="503 Service Unavailable") as target, pytest.raises(RuntimeError, match="the load failed"):
        run(target, Work("", 1, rate=20), seconds=0.1, warm=0.1)


@contextmanager
def _faulty(places: list[int], status: str = "201 Created") -> Iterator[Target]:
    """A server that acknowledges publications with this status, and answers the poll when all have come."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, places, status), daemon=True)
        thread.start()
        yield Target(listener.getsockname()[1], [os.getpid()], MinimalRequests())
    thread.join(10)


def _serve(listener: socket.socket, places: list[int], status: str) -> None:
    publisher, _ = listener.accept()
    subscriber, _ = listener.accept()
    with publisher, subscriber:
        subscriber.recv(65536)
        for _ in range(4):
            if not publisher.recv(65536):
                return
            publisher.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        for place in places:
            text = MESSAGE.format(number=place - 1, place=place, padding="").ljust(128, "x")
            body = f'{{"cursor":"{place}","messages":[{{"data":"{text}"}}]}}'
            subscriber.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        while subscriber.recv(65536):
            pass
