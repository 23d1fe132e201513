"""No change makes PushUp spend more, or less, unless `costs.toml` and docs/internals/architecture.md say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushup.core.cursor import Cursor, parse_cursor
from tests.costs import numbers
from tests.costs.counting import count, memory
from tests.costs.numbers import PYTHON, TOLERANCE, Recorded, differences
from tests.costs.operations import event_to_many, event_to_one
from tests.costs.paths import DOCUMENT, PATHS, filled
from tests.costs.requests import events, raw_events

pytestmark = pytest.mark.interpreted

RENEW = (
    f"If that is what the change is for, or worth it, renew the numbers with `{numbers.COMMAND}`, commit them with the "
    "change, and say why in the message."
)


def test_nothing_costs_more_or_less() -> None:
    """Each number is the one in `costs.toml`, within its tolerance."""
    found = sorted(differences(numbers.read(), numbers.measure()))
    assert not found, "\n".join((*found, RENEW))


def test_a_raw_event_costs_no_more_than_one_of_json() -> None:
    """To one more stream they cost the same. To a single one, the instructions differ by less than the tolerance."""
    assert event_to_many(raw_events) == event_to_many()
    json, raw = event_to_one(events), event_to_one(raw_events)
    assert raw.calls <= json.calls
    assert raw.instructions <= json.instructions * (1 + TOLERANCE)


def test_the_table_of_paths_is_true() -> None:
    """docs/internals/architecture.md has the table that the command writes."""
    document = DOCUMENT.read_text()
    now = filled(document, {name: path() for name, path in PATHS.items()})
    wrong = [new for old, new in zip(document.splitlines(), now.splitlines(), strict=False) if old != new]
    assert now == document, "\n".join(("docs/internals/architecture.md should say:", *wrong, RENEW))


@pytest.mark.parametrize(
    ("kind", "now", "found"),
    [
        ("calls", 100.0, ""),
        ("calls", 101.0, "x takes MORE: 101 calls instead of 100"),
        ("calls", 99.0, "x takes less: 99 calls instead of 100"),
        ("instructions", 102.9, ""),
        ("instructions", 97.1, ""),
        ("bytes", 104.1, "x takes MORE: 104.1 bytes instead of 100"),
        ("bytes", 95.9, "x takes less: 95.9 bytes instead of 100"),
    ],
)
def test_a_difference_is_told(kind: str, now: float, found: str) -> None:
    """Calls must be the same; instructions and bytes, about the same."""
    assert list(differences(Recorded(PYTHON, {kind: {"x": 100.0}}), {kind: {"x": now}})) == [found] * bool(found)


@pytest.mark.parametrize(
    ("kind", "now", "is_told"), [("calls", 101.0, True), ("bytes", 60.0, False), ("bytes", 126.0, True)]
)
def test_another_version_of_python(kind: str, now: float, is_told: bool) -> None:
    """Calls must be the same there, too; only much more instructions and bytes are told."""
    assert bool(list(differences(Recorded("2.7", {kind: {"x": 100.0}}), {kind: {"x": now}}))) is is_told


def test_what_is_measured_is_in_the_file() -> None:
    """A number that is new, or not measured any more, is told."""
    told = sorted(differences(Recorded(PYTHON, {"calls": {"old": 1.0}}), {"calls": {"new": 1.0}}))
    assert told == ["new: calls are not in the file", "old: calls are no longer measured"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The file has all numbers, and the version of Python."""
    some = {"calls": {"a poll, held": 12.34}, "bytes": {"a message": 123456.78}}
    numbers.write(some, tmp_path / "costs.toml")
    assert numbers.read(tmp_path / "costs.toml") == Recorded(PYTHON, some)


def test_what_is_counted() -> None:
    """Calls of PushUp's functions and from there, from file to file, and instructions; nothing of the tests."""
    work = count(lambda: [len(str(number)) for number in range(100)])
    assert work == ((), 0, 0, 0, 0)
    once, twice = count(lambda: parse_cursor("e-1")), count(lambda: [parse_cursor("e-1"), parse_cursor("e-2")])
    assert once.files == ("core/cursor.py",)
    assert once.calls == 1
    assert once.outside_calls == 1  # of the regular expression; `int` and `Cursor` are types
    assert once.instructions > 10
    assert twice[1:] == tuple(2 * number for number in once[1:])


def test_memory_is_what_stays() -> None:
    """What is allocated and freed again does not count."""
    kept: list[object] = []
    assert memory(lambda: [parse_cursor(f"e-{number}") for number in range(1000, 2000)]) < 2_000
    assert memory(lambda: kept.extend(parse_cursor(f"e-{number}") for number in range(1000, 2000))) > 50_000
    assert len(kept) == 1000
    assert kept[0] == Cursor("e", 1000)
