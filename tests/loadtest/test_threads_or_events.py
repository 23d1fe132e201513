from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.liu import threads_or_events
from loadtest.load.servers import Server, running
from loadtest.reports.readings.pushup import a_thread_for_each_request, until_messages_are_lost
from loadtest.reports.results import Table, Value
from loadtest.reports.saved import Saved
from tests.loadtest.readable import assert_readable

KINDS = ("threads", "threads for requests", "events")


def test_threads_cost_more_than_events(tmp_path: Path) -> None:
    """A connection needs many times more memory with threads than with events; all servers deliver everything."""
    table, figures = threads_or_events.measure((50, 400), interval=0.25, seconds=0.75)
    seen = {(row[0], row[1]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert [*seen] == [(number, kind) for number in (50, 400) for kind in KINDS]
    for number, kind in seen:
        row = seen[number, kind]
        threads = {"threads": int(number) + 2, "threads for requests": int(number) + 1, "events": 1}
        assert row["received %"] == 100, kind
        assert row["what was seen"] == "all is well"
        assert float(row["mean trip s"]) > 0
        # On a busy machine some clients of "threads for requests" are between two requests when it is counted.
        assert float(row["threads"]) == pytest.approx(threads[str(kind)], rel=0.1, abs=1)
    memory = {kind: float(seen[400, kind]["memory KB a connection"]) for kind in KINDS}
    assert min(memory["threads"], memory["threads for requests"]) > 3 * memory["events"]
    assert [figure.name for figure in figures] == [
        "threads-or-events-memory",
        "threads-or-events-trip-time",
        "threads-or-events-received",
    ]
    for figure in figures:
        assert {name: len(points) for name, points in figure.lines.items()} == dict.fromkeys(KINDS, 2)
    assert_readable("threads-or-events", [table], tmp_path)


def test_a_cost_that_is_too_small_to_be_counted(tmp_path: Path) -> None:
    """Processor time is counted in ticks: what seems to have cost nothing is not compared."""
    costs = {50: (40.0, 0.0, 0.0), 400: (60.0, 30.0, 20.0)}
    rows = [
        (count, kind, cost)
        for count, each in costs.items()
        for kind, cost in zip(("threads for requests", "threads", "events"), each, strict=True)
    ]
    columns = ("connections", "server", "server's us a delivery")
    Table("threads-or-events", "", columns, rows).write(tmp_path, {"command": ""})
    found = a_thread_for_each_request(Saved(tmp_path))
    assert "costs 3 times what it costs with events, and 2 times" in found.ours
    assert found.verdict == "yes"


def test_the_median_of_the_rounds_and_their_spread() -> None:
    """A round that went wrong moves the median little, and shows in the spread and in what was seen."""
    rows: list[tuple[Value, ...]] = [
        (*[value] * 12, seen) for value, seen in ((1.0, "all is well"), (9.0, "it broke"), (2.0, "all is well"))
    ]
    *medians, seen, trip, received, cost = threads_or_events._summary(rows)
    assert medians == [2.0] * 12
    assert seen == "it broke"
    assert trip == received == cost == "1 9"


def test_a_round_in_which_the_server_gave_up_counts_only_as_not_received() -> None:
    rows: list[tuple[Value, ...]] = [(*[value] * 12, seen) for value, seen in ((1.0, ""), (0.0, "gave up"), (3.0, ""))]
    *medians, _, trip, received, cost = threads_or_events._summary(rows)
    assert medians == [2.0] * threads_or_events.RECEIVED + [1.0] + [2.0] * (11 - threads_or_events.RECEIVED)
    assert (trip, received, cost) == ("1 3", "0 3", "1 3")


def test_all_loads_are_measured(tmp_path: Path) -> None:
    """The others than the first have tables of their own, and figures of what was received."""
    scale = threads_or_events.Scale((20,), 0.5, 1, (30,), 0.5, 1, 10, (0.25,))
    tables, figures = threads_or_events.measure_all(scale)
    assert [table.name for table in tables] == [
        "threads-or-events", "threads-or-events-overload", "threads-or-events-loss",
    ]  # fmt: skip
    assert [row[0] for row in tables[1].rows] == [30, 30, 30]
    assert [tuple(row[:3]) for row in tables[2].rows] == [(40.0, 10, kind) for kind in KINDS]
    assert [figure.name for figure in figures[-2:]] == ["threads-or-events-overload-received", "threads-or-events-loss"]
    assert "every 0.5 s" in figures[-2].title
    assert figures[-1].lines == {kind: [(40.0, 100.0)] for kind in KINDS}


@pytest.mark.parametrize(
    ("threads", "what"),
    [((99.95, 80.0), "with threads up to 2,000"), ((80.0, 100.0), "with threads at none of these loads")],
)
def test_the_load_at_which_messages_are_lost(threads: tuple[float, float], what: str, tmp_path: Path) -> None:
    """The load up to which everything arrives counts, for the paper's design and for events: not one beyond a loss."""
    received = {"threads": (10.0, 10.0), "threads for requests": threads, "events": (100.0, 100.0)}
    rows = [
        (due, kind, share) for kind, each in received.items() for due, share in zip((2000.0, 4000.0), each, strict=True)
    ]
    Table("threads-or-events-loss", "", ("due a second", "server", "received %"), rows).write(tmp_path, {})
    found = until_messages_are_lost(Saved(tmp_path))
    assert found.ours == f"everything up to 4,000 deliveries a second, {what}"
    assert found.verdict == "yes"


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
