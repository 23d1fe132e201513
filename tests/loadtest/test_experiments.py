from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.beyond import journal, kills
from loadtest.hsu import blocked_client, growing_output, recorded_game, service_requests, slow_backend
from loadtest.hsu.blocked_client import Replay
from loadtest.hsu.player_records import SERVICES
from loadtest.hsu.slow_backend import Scale
from loadtest.liu import range_operations
from loadtest.reports.results import Figure, Table
from tests.loadtest.readable import assert_readable


def test_a_blocked_client_does_not_delay_others(tmp_path: Path) -> None:
    """With the output buffer, the worst response times do not change; with plain writes, they grow with T."""
    tables, (figure, timeline) = blocked_client.measure(Replay(before=1.0, seconds=9.0), times=(0, 4, 5), at_once=3)
    assert_readable("blocked-client", tables, tmp_path)
    (_, buffered, _, plain, _, _), (_, buffered_4, responses, plain_4, _, sent), _ = (
        map(float, row) for row in tables[0].rows
    )
    assert 4 < responses / sent < 5
    assert max(buffered, plain, buffered_4) < plain_4 / 2
    assert plain_4 > 1.0
    assert responses > 100
    assert set(figure.lines) == set(timeline.lines) == {"plain writes", "output buffer"}
    stalled = dict(timeline.lines["plain writes"])
    assert max(delay for moment, delay in stalled.items() if moment < 0) < 0.5
    assert max(delay for moment, delay in stalled.items() if 0 < moment < 4) > 1.0


def test_what_a_blocked_link_holds_does_not_depend_on_the_traffic(tmp_path: Path) -> None:
    """With twice the traffic the server stalls in half the time: its buffers hold as many bytes each time."""
    table = blocked_client.measure_threshold(Replay(before=2.0, seconds=9.0), (0.3, 0.6), at_once=2, blocked=6.0)
    assert_readable("blocked-client", [table], tmp_path)
    (_, rate, seconds, size), (_, double, sooner, same_size) = (map(float, row) for row in table.rows)
    assert double > 1.5 * rate
    assert 0 < sooner < seconds < 6
    assert 0.5 < size / same_size < 2


def test_a_recorded_game_is_replayed(tmp_path: Path) -> None:
    """A move follows another at its table; each replay has these messages, and only plain writes make others wait.

    The link works again only after the last message has been sent. All are received nevertheless.
    """
    replay = Replay(before=0.5, seconds=3.5)
    tables, _ = recorded_game.measure(recorded_game.Scale(50, replay, blocked=(4.5,), rounds=1))
    assert_readable("recorded-game", tables, tmp_path, but=["many_players"])
    buffered, plain = (dict(zip(tables[0].columns, row, strict=True)) for row in tables[0].rows)
    moves, out = int(buffered["messages in"]), int(buffered["messages out"])
    assert moves > 60
    assert 4 * moves < out < 5 * moves
    assert buffered["received %"] == plain["received %"] == 100
    assert float(buffered["100 longest s"]) < float(plain["100 longest s"]) / 2


def test_output_grows_up_to_its_limit(tmp_path: Path) -> None:
    """A stream whose client reads again in time stays open, one beyond the limit is closed; both have everything."""
    (table,), _ = growing_output.measure((0.3, None), rate=100.0)
    assert_readable("growing-output", [table], tmp_path)
    in_time, never = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert in_time["connection closed after MB"] == "-"
    assert 0.9 < float(never["connection closed after MB"]) < 1.3
    for row in (in_time, never):
        assert row["that C1 has"] == row["messages"]
    assert float(never["server's memory grew by MB"]) > float(in_time["server's memory grew by MB"])
    assert not table.failed


def test_a_slow_backend_delays_only_those_who_need_it(tmp_path: Path) -> None:
    """All polls are served, 20 at a time or one after the other; only a handler that blocks makes everybody wait."""
    tables, (figure,) = slow_backend.measure(Scale(polls=60, calls=(0.1,), seconds=1.0, rounds=1))
    assert_readable("slow-backend", tables, tmp_path)
    delays, polls = tables
    for helper, call, count, served, refused, unanswered, seconds, most, left in polls.rows:
        assert (count, served, refused, unanswered, left) == (60, 60, 0, 0, 0), helper
        assert int(most) in ({1} if helper == slow_backend.BLOCKING else range(11, 21)), helper
        assert float(seconds) >= float(call) * 60 / float(most)
    assert all(int(row[2]) > 50 for row in delays.rows)
    assert {*figure.lines} == {*slow_backend.HELPERS}
    idle, blocked = (seconds for _, seconds in figure.lines[slow_backend.BLOCKING])
    assert blocked > 0.5
    assert max(idle, figure.lines[slow_backend.POOL][-1][1], figure.lines[slow_backend.PROCESS][-1][1]) < blocked / 3


@pytest.mark.parametrize("service", SERVICES)
def test_requests_of_real_servers(service: str, tmp_path: Path) -> None:
    """Whoever has a record is allowed, and only a handler that asks for it itself makes everybody wait."""
    scale = service_requests.Scale(polls=60, round_trips=(0.03,), seconds=0.5, rounds=1)
    (table,), _ = service_requests.measure(scale, [service])
    assert_readable("service-requests", [table], tmp_path)
    rows = {str(row[2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert {*rows} == {*slow_backend.HELPERS}
    for helper, row in rows.items():
        assert row["answered rightly"] == 60, helper
        assert float(row["ms a poll"]) * int(row["most concurrent calls"]) > 30, helper
        assert int(row["most concurrent calls"]) in ({1} if helper == slow_backend.BLOCKING else range(6, 21)), helper
    blocked, *others = (float(rows[helper][f"others' {slow_backend.LONGEST}"]) for helper in slow_backend.HELPERS)
    assert blocked > 500
    assert max(others) < blocked  # by far, on a machine that is not busy


def test_operations_on_large_trees(tmp_path: Path) -> None:
    """In a tree of a thousand times as many items they take a few times as long."""
    tables, _ = range_operations.measure(range_operations.Scale((100, 100_000), 300, 3))
    assert_readable("range-operations", tables, tmp_path)
    (_, *few), (_, *many) = tables[0].rows
    assert all(float(long) < 50 * float(short) for short, long in zip(few, many, strict=True))


def test_commits_in_groups_are_faster() -> None:
    """With many publishers, the journal accepts several times as many publications as with a commit for each."""
    ((table,), (figure,)) = journal.measure((32,), seconds=1.0, rounds=1)
    rates = {row[1]: float(row[2]) for row in table.rows}
    assert rates["memory"] > rates["one commit each"]
    assert rates["journal"] > 2 * rates["one commit each"]
    assert set(figure.lines) == set(rates)


def test_kills_lose_nothing() -> None:
    """After some kills, every acknowledged message is there once and in order, and in each chain of cursors."""
    ((table,), _) = kills.measure(3)
    ((count, acknowledged, found, lost, repeated, out_of_order, gaps, chains),) = table.rows
    assert count == 3
    assert float(found) >= float(acknowledged) > 0
    assert (lost, repeated, out_of_order, gaps) == (0, 0, 0, 0)
    assert chains == "3 of 3"


def test_results_are_written_for_people_and_programs(tmp_path: Path) -> None:
    """A table is CSV, JSON and text; a figure is PNG and SVG."""
    table = Table("t", "A title", ("x", "name"), [(1, "a"), (2.5, "b")])
    table.write(tmp_path, {"command": "c"})
    with (tmp_path / "t.csv").open() as file:
        assert list(csv.reader(file)) == [["x", "name"], ["1", "a"], ["2.5", "b"]]
    assert json.loads((tmp_path / "t.json").read_text()) == {
        "title": "A title",
        "about": {"command": "c"},
        "rows": [{"x": 1, "name": "a"}, {"x": 2.5, "name": "b"}],
    }
    assert table.text().splitlines() == ["A title", "", "  x  name", "  1     a", "2.5     b"]
    Figure("f", "A title", "x", "y", {"one": [(0, 1), (1, 2)]}).write(tmp_path, {"command": "c"})
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "f.svg").read_text()


def test_the_command_line_names_the_experiments() -> None:
    """`python -m loadtest --help` lists them, and so does the error for an unknown one."""
    command = [sys.executable, "-m", "loadtest"]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "blocked-client" in told
    unknown = subprocess.run([*command, "nonsense"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "slow-backend" in unknown.stderr
