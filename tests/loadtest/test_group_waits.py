"""What deliveries and stability wait for, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.mishra import trace, waits
from loadtest.mishra.core.settings import Settings
from loadtest.mishra.team import EVENTS, THREADS
from loadtest.mishra.waits import AT_ONCE, DELIVERY, LATER, STABILITY, UNTIL_LAST
from loadtest.reports.results import Table
from tests.loadtest.readable import assert_readable

pytestmark = pytest.mark.xdist_group("group")

SETTINGS = Settings(decision=2.0, election=0.5, late=5.0, termination=10.0, precision=0.2)
"""Patient, for the machine may be busy: here nobody is to be suspected."""

Seen = dict[tuple[str, str], dict[str, float]]
"""Of events, by semantics and when the decider acknowledges."""


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    scale = waits.QUICK._replace(seconds=0.25, intervals_ms=(4,), drivers=(EVENTS, THREADS))
    return waits.measure(scale, settings=SETTINGS)


def seen(table: Table) -> Seen:
    found: Seen = {}
    for row in table.rows:
        driver, semantics, _, when, *_ = row
        if driver == THREADS:
            continue
        numbers = zip(table.columns[4:-1], row[4:-1], strict=True)
        found[str(semantics), str(when)] = {name: float(value) for name, value in numbers}
    return found


def test_what_each_semantics_waits_for(tables: list[Table]) -> None:
    """An order costs a decision, strict atomicity the stability of others; the waits are all of the time."""
    assert [table.name for table in tables] == ["group-delivery-waits", "group-stability-waits", "group-trace"]
    found = seen(tables[0])
    assert len(found) == 10
    for (semantics, _), times in found.items():
        assert times["ms until held"] > 0
        assert min(times[name] for name in DELIVERY) >= 0
        assert times["delivery ms"] == pytest.approx(sum(times[name] for name in DELIVERY))
        assert (times["for the decision"] > 0) == ("No ord" not in semantics)
        assert semantics.startswith(("Strc", "Strn")) or times["for dependencies"] == 0
    for semantics in ("Strc atm/No ord", "Strc atm/Ttl ord"):
        assert 0 < found[semantics, AT_ONCE]["for dependencies"] < found[semantics, LATER]["for dependencies"]


def test_the_deciders_own_acknowledgement_costs_a_decision(tables: list[Table]) -> None:
    """If it comes a rotation later, it is the last for two of three proposers, and stability takes a decision more."""
    found = seen(tables[1])
    for (_, when), times in found.items():
        assert times["stability ms"] == pytest.approx(sum(times[name] for name in STABILITY))
        assert times[UNTIL_LAST] == pytest.approx(5 / 3 if when == AT_ONCE else 8 / 3, abs=0.3)
        assert times[waits.LAST] == 0 if when == AT_ONCE else 40 < times[waits.LAST] < 90


def test_one_update_is_shown(tables: list[Table]) -> None:
    """Step by step; who acknowledges last depends on when the decider does."""
    for when, last in ((AT_ONCE, trace.THIRD), (LATER, trace.DECIDER)):
        rows = [row for row in tables[2].rows if row[:2] == (EVENTS, when)]
        assert [row[2] for row in rows[:2]] == ["held by its proposer", "ordinal"]
        assert rows[-2][2] == f"acknowledged by {last}"
        assert rows[-1][2] == "known to be stable"
        times = [float(row[3]) for row in rows]
        assert len(times) == 5
        assert times == sorted(times)
        assert min(times) >= 0


def test_threads_are_traced_as_events_are(tables: list[Table], tmp_path: Path) -> None:
    """Both drivers give every column, and each reading finds its number."""
    for table in tables:
        assert {row[0] for row in table.rows} == {EVENTS, THREADS}
    assert all(float(row[4]) > 0 for table in tables[:2] for row in table.rows)
    assert_readable("group-waits", tables, tmp_path)
