"""How much work an entry is, and how much of it is done before everything else gets its turn."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast.work_budget import ENTRY_UNITS, TURN_UNITS, Pace, units_of, work_of
from pushup.core.commands import Close, Command, Create, Entry, Expire
from pushup.core.state import EXPIRE_AT_MOST
from tests.core.builders import batch, draft, publish
from tests.piped_links import TurnClock


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (publish("a"), 1),
        (publish("a", "b", "c"), 3),
        (batch(draft("a"), draft("a", "b"), draft("c")), 4),
        (Create("a"), 0),
        (Close("a"), 0),
        (Expire(), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_command_counts_what_it_puts_on_channels(command: Command, expected: int) -> None:
    """Each message once for each of its channels; and each command something besides."""
    assert units_of(command) == ENTRY_UNITS + expected


def test_what_may_expire_counts_as_well() -> None:
    """With the first entry of a second, and with each `Expire`."""
    command, expire = publish("a"), Expire()
    assert work_of(Entry("e", 1, 10.9, command), 10.1) == units_of(command)
    assert work_of(Entry("e", 1, 11.0, command), 10.9) == units_of(command) + EXPIRE_AT_MOST
    assert work_of(Entry("e", 1, 10.9, expire), 10.1) == units_of(expire) + EXPIRE_AT_MOST


def test_a_task_waits_before_it_exceeds_its_turn() -> None:
    """What fits is done in this one; what is more than a turn is done alone."""
    clock = TurnClock()
    done: list[list[int]] = [[]]
    sizes = [2 * TURN_UNITS, TURN_UNITS - 1, 1, 1, 5, 3 * TURN_UNITS, 1, TURN_UNITS, 5, 5]

    async def work() -> None:
        pace = Pace(clock)
        for units in sizes:
            await pace.spend(units)
            done[-1].append(units)

    finished = Deferred.fromCoroutine(work())
    while not finished.called:
        done.append([])
        clock.turn()
    assert done == [[2 * TURN_UNITS], [TURN_UNITS - 1, 1], [1, 5], [3 * TURN_UNITS], [1], [TURN_UNITS], [5, 5]]
