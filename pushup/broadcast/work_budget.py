"""How long a node may be busy with entries, checkpoints and what arrives on a link before all else gets its turn."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from pushup.core.attendance import Away, Gone, Here, Leave
from pushup.core.commands import Claim, Command, Entry, Erase, Expire, Publish, Read, Told
from pushup.core.members import GONE_AT_MOST
from pushup.core.rows import BUCKET
from pushup.core.snapshot import Snapshot, Tables
from pushup.core.state import EXPIRE_AT_MOST, ReplicatedState
from pushup.core.state_transfer import restoring
from pushup.transport.framed_link import Link

TURN_UNITS = 1500
"""Work of one turn, in units of about 3 us: some 5 ms, unless one entry is more. A unit is a message put on a channel,
or restored there, or another row restored."""

ENTRY_UNITS = 10
"""Work for an entry besides: decoding it, counting it, waking polls, and answering its publisher."""

MEMBER_UNITS = 3
"""Work for a member who comes, or about whom an entry asks; for a message that is read, or told to the application."""

READERS_IN_UNIT = 8
"""So many readers for whom a message waits are a unit of work; each counts once for each channel."""


class Pace:
    """Counts the work of a task, and has it wait for the reactor's next turn before it exceeds `TURN_UNITS`."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._spent = 0

    async def spend(self, units: int) -> None:
        """So much work comes next: in this turn, if there is room for it."""
        if self._spent and self._spent + units > TURN_UNITS:
            self._spent = 0
            await deferLater(self._clock, 0, lambda: None)
        self._spent += units


async def free(tables: Tables, pace: Pace) -> None:
    """Remove these rows a little at a time: to free a million at once takes long."""
    for rows in tables.all():
        while rows.free_some():
            await pace.spend(BUCKET // 4)


def work_of(entry: Entry, before: float) -> int:
    """The units of work to apply an entry; `before`: the time of the entry before it.

    What a message evicts is about as much as it adds. The first entry of a second may have expired something.
    """
    units = units_of(entry.command)
    if type(entry.command) is Expire or entry.time // 1 > before // 1:
        units += EXPIRE_AT_MOST
    return units


def units_of(command: Command) -> int:
    """The same without what may expire."""
    units = ENTRY_UNITS
    match command:
        case Publish(messages=drafts):
            for draft in drafts:
                units += len(draft.channels)
                if draft.unread is not None:
                    units += len(draft.channels) * len(draft.unread.subjects) // READERS_IN_UNIT
        case Read() | Claim() | Told():
            units += MEMBER_UNITS * len(command.ids)
        case Erase():
            units += EXPIRE_AT_MOST
        case Here() | Away() | Leave():
            units += MEMBER_UNITS * len(command.members)
        case Gone():
            units += MEMBER_UNITS * GONE_AT_MOST
    return units


class Turns:
    """Does the work that arrives on a link, in its order, and never much more than `TURN_UNITS` of it in one turn.

    What arrives in one piece is done in one turn, unless it is too much: then the link is held until the next.
    """

    def __init__(self, link: Link, clock: IReactorTime) -> None:
        self._link = link
        self._clock = clock
        self._done = 0
        self._arrival = 0  # what has arrived, when the present turn began

    def do(self, steps: Iterator[int]) -> None:
        """Do this work now, and what is too much for this turn in the next ones, before anything else that arrives.

        `steps` yields the units of each step, and takes the step when it is asked for the next one.
        """
        if self._arrival != self._link.arrivals:
            self._arrival, self._done = self._link.arrivals, 0
        for units in steps:
            if self._done and self._done + units > TURN_UNITS:
                self._link.hold()
                self._clock.callLater(0, self._go_on, units, steps)
                return
            self._done += units
        self._link.go_on()

    def _go_on(self, units: int, steps: Iterator[int]) -> None:
        """The next turn."""
        if self._link.is_open:
            self._done = units
            self._link.guarded(self.do, steps)


async def restored(snapshot: Snapshot, pace: Pace) -> ReplicatedState:
    """The state that the snapshot was taken of."""
    state, work = restoring(snapshot)
    for units in work:
        await pace.spend(units)
    return state
