from __future__ import annotations

import pytest

from loadtest.liu import threads_or_events
from loadtest.load.servers import Server, running
from loadtest.reports.results import Value


def test_threads_cost_more_than_events() -> None:
    """A connection needs many times more memory with threads than with events; both servers deliver everything."""
    (table,), figures = threads_or_events.measure((50, 400), interval=0.25, seconds=0.75)
    seen = {(row[0], row[1]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert seen.keys() == {(number, kind) for number in (50, 400) for kind in ("threads", "events")}
    for number, kind in seen:
        row = seen[number, kind]
        threads = {"threads": int(number) + 2, "events": 1}
        assert row["received %"] == 100, kind
        assert row["what was seen"] == "all is well"
        assert float(row["mean trip s"]) > 0
        assert float(row["threads"]) == pytest.approx(threads[str(kind)], abs=1)
    memory = {kind: float(seen[400, kind]["memory KB a connection"]) for kind in ("threads", "events")}
    assert memory["threads"] > 3 * memory["events"]
    assert [figure.name for figure in figures] == [
        "threads-or-events-memory",
        "threads-or-events-trip-time",
        "threads-or-events-received",
    ]
    for figure in figures:
        assert {name: len(points) for name, points in figure.lines.items()} == {"threads": 2, "events": 2}


def test_a_server_that_gives_up_is_a_result() -> None:
    """Connections without a thread are noticed: the messages they miss are counted, and the experiment continues."""
    with running(module="tests.loadtest.few_threads_server") as server:
        row = _row(server, 30)
    assert 50 < float(row["received %"]) < 90, row
    assert "messages did not arrive" in str(row["what was seen"])
    assert "connections were ended" in str(row["what was seen"])


def test_a_server_that_ends_is_a_result() -> None:
    """So is a server that has already ended when it is measured."""
    with running() as server:
        gone = server
    with running() as server:
        row = _row(Server(server.pid, "127.0.0.1", gone.port), 5)
    assert "the server gave up" in str(row["what was seen"])
    assert row["received %"] == 0


def _row(server: Server, connections: int) -> dict[str, Value]:
    row = threads_or_events.measure_server(server, connections, interval=0.3, seconds=0.6)
    return dict(zip(threads_or_events.COLUMNS[2:], row, strict=True))
