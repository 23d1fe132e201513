"""The application of the simulation, and the check of what it is told: it notices what breaks each promise."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from loadtest.history.events import BrokenPromise
from pushup.core.channel import Unread
from pushup.core.commands import Claim, Claimed, Command, Done, Draft, Entry, Outcome, Publish, Published, Read, Told
from tests.simulation.application import Call
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.steps import CLUSTER, Plan, Step
from tests.simulation.unread import UnreadMessages
from tests.simulation.world import START, World

ID = "e-1"

SETUP = {**CLUSTER, "users": True, "unread_limit": 1000}


def publish(at: float, after: float, *subjects: str) -> Step:
    """At n0, with a key, on channel a."""
    return Step(at, "publish", {
        "publisher": 0, "groups": [("a",)], "key": True, "ack": "accepted", "target": "node", "node": 0,
        "unread": (after, subjects),
    })  # fmt: skip


def calls_about(steps: tuple[Step, ...]) -> list[Call]:
    """The calls about the first message, in a run that keeps every promise."""
    simulations: list[Simulation] = []
    result = simulate(Plan("steps", SETUP, steps), simulations.append)
    assert not result.broken
    unread = simulations[0].unread
    assert unread is not None
    calls = unread.application.calls
    return [call for call in calls if call.id == calls[0].id]


def test_an_application_that_fails_is_called_again_with_the_same_id_and_another_time() -> None:
    """After 15 s, and then after 30 s; a second or two are needed to notice that it is time."""
    fails = Step(1.0, "application", {"mood": "fails", "seconds": 30.0})
    calls = calls_about((fails, publish(2.0, 1.0, "zoe")))
    times = [call.timestamp - calls[0].timestamp for call in calls]
    assert len(times) == 3
    assert 15 <= times[1] <= 18
    assert 30 <= times[2] - times[1] <= 33
    assert {call.subjects for call in calls} == {("zoe",)}


def test_another_node_calls_if_one_dies_while_it_calls() -> None:
    """The first one has been told nothing, so it might have been any."""
    silent = Step(1.0, "application", {"mood": "silent", "seconds": 5.0})
    kills = [Step(5.0, "kill", {"node": node, "seconds": 60.0}) for node in (0, 1)]
    for kill in kills:
        first, *others = calls_about((silent, publish(2.0, 1.0, "zoe"), kill))
        assert [round((call.timestamp - first.timestamp) / 15) for call in others] == [1]


def test_an_application_that_hangs_up_gets_the_call_twice() -> None:
    hangs_up = Step(1.0, "application", {"mood": "hangs up", "seconds": 5.0})
    assert len(calls_about((hangs_up, publish(2.0, 1.0, "zoe")))) == 2


# The check.


class Run:
    """A message on `a` that waits for ann and ben until 110, and what happens to it."""

    def __init__(self) -> None:
        self.world = World("unread")
        self.record = Record(self.world)
        self.unread = UnreadMessages(self.world, Network(self.world), self.record)
        self.unread.published("m", (10.0, ("ann", "ben")))
        self.sequence = 0
        draft = Draft(("a",), Raw(b'"m"'), None, Unread(10.0, ("ann", "ben")))
        self.entry(100.0, Publish((draft,)), Published("e", 1, 1, 100.0))

    def entry(self, time: float, command: Command, outcome: Outcome | None = None) -> None:
        self.sequence += 1
        self.unread.applied(Entry("e", self.sequence, time, command), outcome or Done())
        self.world.run(START + time - 100.0)

    def claimed(self, time: float) -> None:
        self.entry(time, Claim((ID,)), Claimed((ID,)))

    def says(self, subject: str, cursor: str, channel: str = "a") -> None:
        self.unread.answered(self.unread.sends(subject, (channel,), cursor))

    def read(self, subject: str, time: float) -> None:
        self.entry(time, Read(subject, (ID,)))

    def told(self, time: float) -> None:
        self.entry(time, Told((ID,)))

    def called(self, *subjects: str, id_: str = ID, channel: str = "a", data: str | None = "m") -> None:
        """It agrees."""
        self.unread.called(Call(self.world.now, int(self.world.now), id_, (channel,), subjects, data))
        self.unread.application.agreed_to.add(id_)

    def called_about(self, id_: str, channel: str, data: str) -> None:
        self.called("ann", "ben", id_=id_, channel=channel, data=data)

    def at(self, time: float) -> None:
        self.world.run(START + time - 100.0)

    def ends(self) -> None:
        self.at(200.0)
        self.unread.check()

    def do(self, *calls: tuple[Any, ...]) -> None:
        """Call these methods."""
        for name, *arguments in calls:
            getattr(self, name)(*arguments)
        self.at(300.0)


SAID = ("says", "ann", ID)
IN_TIME = (SAID, ("read", "ann", 109.9), ("claimed", 111.0))
LATE = (SAID, ("read", "ann", 113.0), ("claimed", 114.0))
CLAIMED = ("claimed", 111.0)
CALLED = ("called", "ann", "ben")

GOOD = [
    (*IN_TIME, ("called", "ben"), ("told", 112.0), ("ends",)),
    (*LATE, CALLED, ("told", 115.0), ("ends",)),
    (CLAIMED, CALLED, ("claimed", 126.0), ("claimed", 156.0), ("ends",)),
    (SAID, ("read", "ann", 101.0), ("says", "ben", ID), ("read", "ben", 102.0), ("ends",)),
    (CLAIMED, ("called_about", ID, "a", "m"), ("told", 112.0), ("ends",)),
    (("at", 109.0), SAID, CLAIMED, CALLED, ("ends",)),
]
"""What may happen."""

BAD = [
    ((*IN_TIME, CALLED), "never about who has read"),
    ((*LATE, ("called", "ben")), "about all who have not read"),
    ((CALLED,), "called once"),
    ((CLAIMED, CALLED, CALLED), "called once"),
    ((CLAIMED, CALLED, ("claimed", 126.0), CALLED), "called once"),
    ((CLAIMED, ("claimed", 125.0)), "pauses grow"),
    ((CLAIMED, ("claimed", 126.0), ("claimed", 150.0)), "pauses grow"),
    ((CLAIMED, ("called", "ann", "zoe")), "calls name those who were named"),
    ((CLAIMED, ("called",)), "calls name those who were named"),
    ((CLAIMED, ("called_about", "e-2", "a", "m")), "calls are about messages"),
    ((CLAIMED, ("called_about", ID, "b", "m")), "calls are about messages"),
    ((CLAIMED, ("called_about", ID, "a", "n")), "calls are about messages"),
    ((CLAIMED, ("told", 112.0)), "called: the application has not agreed"),
    ((("read", "ann", 101.0),), "who has read"),
    ((("says", "ben", ID), ("read", "ann", 101.0)), "who has read"),
    ((("says", "ann", "e-0"), ("read", "ann", 101.0)), "who has read"),
    ((("says", "ann", ID, "b"), ("read", "ann", 101.0)), "who has read"),
    ((("ends",),), "called: nobody has told"),
    ((("at", 105.0), SAID, CLAIMED, CALLED, ("ends",)), "never about who has read: ann had seen"),
]
"""What may not, and the promise that is broken."""


@pytest.mark.parametrize("happens", GOOD)
def test_what_may_happen(happens: tuple[tuple[Any, ...], ...]) -> None:
    Run().do(*happens)


@pytest.mark.parametrize(("happens", "promise"), BAD)
def test_what_may_not_happen(happens: tuple[tuple[Any, ...], ...], promise: str) -> None:
    run = Run()
    with pytest.raises(BrokenPromise, match=promise):
        run.do(*happens)
