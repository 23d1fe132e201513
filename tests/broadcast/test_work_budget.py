"""How much work an entry is, and how much of it is done before everything else gets its turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec import Raw
from twisted.internet.defer import Deferred

from pushup.broadcast.work_budget import (
    ENTRY_UNITS,
    MEMBER_UNITS,
    READERS_IN_UNIT,
    TURN_UNITS,
    Pace,
    Turns,
    units_of,
    work_of,
)
from pushup.core.attendance import Attendance, Away, Gone, Here, Leave
from pushup.core.channel import Unread
from pushup.core.commands import Claim, Close, Command, Create, Draft, Entry, Erase, Expire, Publish, Read, Told
from pushup.core.members import GONE_AT_MOST
from pushup.core.state import EXPIRE_AT_MOST
from pushup.transport.framed_link import Link, framed
from tests.core.builders import batch, draft, publish
from tests.piped_links import TurnClock, join

SUBJECTS = tuple([str(number) for number in range(50)])

KEYS = tuple([("a", subject) for subject in SUBJECTS])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (publish("a"), 1),
        (publish("a", "b", "c"), 3),
        (batch(draft("a"), draft("a", "b"), draft("c")), 4),
        (Create("a"), 0),
        (Close("a"), 0),
        (Expire(), 0),
        (Erase("owner", "x"), EXPIRE_AT_MOST),
        (Here("n", tuple([Attendance(*key) for key in KEYS])), MEMBER_UNITS * 50),
        (Away("n", KEYS, 1.0), MEMBER_UNITS * 50),
        (Leave(KEYS), MEMBER_UNITS * 50),
        (Gone("n", 1.0), MEMBER_UNITS * GONE_AT_MOST),
        (Read("s", ("e1-1", "e1-2")), MEMBER_UNITS * 2),
        (Claim(("e1-1", "e1-2", "e1-3")), MEMBER_UNITS * 3),
        (Told(("e1-1",)), MEMBER_UNITS),
        (
            Publish((Draft(("a", "b"), Raw(b"1"), unread=Unread(1.0, SUBJECTS)), draft("a"))),
            3 + 100 // READERS_IN_UNIT,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_command_counts_what_it_changes(command: Command, expected: int) -> None:
    """Messages and their readers, each once for each channel; members; messages that are read; something besides."""
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


# What arrives on a link is done in its order, a limited amount in each turn.


class Work:
    """A link on which sizes of work arrive; `done` is what was done, by turn."""

    def __init__(self) -> None:
        self.clock = TurnClock()
        self.done: list[list[int]] = [[]]
        self.fails = False
        self.link = Link(self._received, lambda reason: None)
        self.sender = Link(lambda body: None, lambda reason: None)
        self.end, _ = join(self.sender, self.link, self.clock)
        self.turns = Turns(self.link, self.clock)

    def _received(self, body: bytes) -> None:
        self.turns.do(self._steps(map(int, body.split())))

    def _steps(self, sizes: Iterable[int]) -> Iterator[int]:
        for units in sizes:
            yield units
            if self.fails:
                raise ValueError("a bug")
            self.done[-1].append(units)

    def arrives(self, *sizes: int) -> None:
        """Each in a frame of its own, but for the last two."""
        for units in sizes[:-2]:
            self.sender.send(framed(b"%d" % units))
        self.sender.send(framed(b" ".join([b"%d" % units for units in sizes[-2:]])))
        self.end.carry()

    def next_turn(self) -> None:
        self.done.append([])
        self.clock.turn()


def test_what_fits_is_done_at_once() -> None:
    """Up to the limit, in one turn; then nothing is left to do."""
    work = Work()
    work.arrives(TURN_UNITS - 10, 10)
    assert work.done == [[TURN_UNITS - 10, 10]]
    work.next_turn()
    assert work.done[1:] == [[]]
    assert work.clock.getDelayedCalls() == []


def test_the_rest_is_done_in_the_next_turns() -> None:
    """In order; and the link waits, so that nothing more arrives before."""
    work = Work()
    sizes = [1000, 500, 1, 1499, 1, 700, 700, 700]
    work.arrives(*sizes)
    assert (work.done, work.link.is_open) == ([[1000, 500]], True)
    work.next_turn()
    work.next_turn()
    work.next_turn()
    assert work.done == [[1000, 500], [1, 1499], [1, 700, 700], [700]]
    work.next_turn()
    assert [size for turn in work.done for size in turn] == sizes


def test_work_that_is_more_than_a_turn_is_done_alone() -> None:
    work = Work()
    work.arrives(1, 5000, 1, 5000)
    for _ in range(3):
        work.next_turn()
    assert work.done == [[1], [5000], [1], [5000]]


def test_each_piece_that_arrives_has_its_own_limit() -> None:
    """What was done of an earlier one does not count; and no turn is needed between."""
    work = Work()
    for _ in range(3):
        work.arrives(TURN_UNITS - 1, 1)
    assert work.done == [[TURN_UNITS - 1, 1] * 3]
    assert work.clock.getDelayedCalls() == []


def test_what_arrives_meanwhile_comes_behind() -> None:
    work = Work()
    work.arrives(1000, 1000)
    work.arrives(1)
    assert (work.done, work.sender.is_open, len(work.end.unsent)) == ([[1000]], True, 5)
    work.next_turn()
    work.end.carry()
    assert work.done == [[1000], [1000, 1]]


def test_work_of_a_link_that_has_ended_is_not_done() -> None:
    work = Work()
    work.arrives(1000, 1000)
    work.end.die()
    work.next_turn()
    assert work.done == [[1000], []]
    assert work.clock.getDelayedCalls() == []


def test_work_that_cannot_be_done_ends_the_link() -> None:
    """In a later turn as well: otherwise it would be held for ever, while both processes go on."""
    work = Work()
    work.arrives(1000, 1000)
    work.fails = True
    with pytest.raises(ValueError, match="a bug"):
        work.next_turn()
    assert (work.link.is_open, work.link.was_aborted) == (False, True)
    work.next_turn()
    assert work.done == [[1000], [], []]
    assert not work.end.peer.is_reading
