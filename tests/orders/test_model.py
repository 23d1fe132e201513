"""The model of several logs keeps its promises, whatever happens; and each planted bug is noticed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.orders import costs
from tests.orders.bugs import BUGS, Bug, noticed
from tests.orders.checker import BrokenPromise
from tests.orders.model import Message, Part, Place, State, bits_of, first_page, read_cursor, write_cursor
from tests.orders.one_number import one_number
from tests.orders.world import CHANNELS, STATES, run

BATCH_SEEDS = 60


@pytest.mark.parametrize("batch", range(10))
def test_seeds(batch: int) -> None:
    """No promise is broken, and the runs come by everything dangerous."""
    reached: Counter[str] = sum((run(batch * BATCH_SEEDS + n) for n in range(BATCH_SEEDS)), Counter())
    assert not {state for state in STATES if not reached[state]}


def test_a_seed_decides_everything() -> None:
    """Or a failure could not be looked into."""
    assert run(3) == run(3)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug: Bug) -> None:
    """By the seed that is noted, or else by another."""
    assert noticed(bug, (bug.seed, *range(400)))


def test_a_cursor_of_today_is_one_of_the_log_with_all_channels() -> None:
    """So it resumes exactly after the move from one log to several, and looks the same as long as there is one."""
    assert read_cursor("k3f9-41") == {"": Place("k3f9", 41)}
    assert write_cursor(read_cursor("k3f9-41")) == "k3f9-41"
    vector = {"0": Place("k3f9", 41), "10": Place("k3g0", 7)}
    assert read_cursor(write_cursor(vector)) == vector
    parent = State("", "k3f9", sequence=41)
    child = parent.part("0", "k3g0")
    assert child.find(Place("k3f9", 40)) == 40
    assert child.find(Place("k3f9", 42)) is None  # beyond the split: another order had this name, too


def test_a_page_that_ends_in_another_log() -> None:
    """Of a log that has more, everything up to the split has been seen, but not what came later."""
    parent = State("", "e1", sequence=12)
    one, other = parent.part("0", "e2"), parent.part("1", "e3")
    one.sequence = other.sequence = 20
    early, late = Message(5, 13, "e3", ("x",), "early"), Message(9, 14, "e2", ("y",), "late")
    taken, vector = first_page([Part(one, 0, {late: ["y"]}), Part(other, 0, {early: ["x"]})], limit=1)
    assert taken == [early]
    assert vector == {"0": Place("e2", 12), "1": Place("e3", 20)}


def test_the_part_of_a_name_in_braces_decides() -> None:
    """So an application can keep channels together; and the channels of the runs are in several logs."""
    assert bits_of("a{1}") == bits_of("{1}/b") != bits_of("a{2}")
    assert {bits_of(channel)[0] for channel in CHANNELS} == {"0", "1"}


def test_the_document_has_the_calculation() -> None:
    """docs/internals/after-one-order.md shows what `python -m tests.orders.costs` prints."""
    text = costs.DOCUMENT.read_text()
    for table in costs.TABLES:
        assert table() in text


def test_one_number_needs_clocks_that_are_never_set_back() -> None:
    """It keeps the promises while clocks are right within a bound; otherwise messages are missing without a gap."""
    for seed in range(20):
        run(seed, one_number(), clocks_jump=False)
    with pytest.raises(BrokenPromise, match="delivered or covered by a gap"):
        sum((run(seed, one_number()) for seed in (88, *range(400))), Counter())
