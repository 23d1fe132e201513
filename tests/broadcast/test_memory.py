"""The broadcast of one process, and what a single node says of others."""

from __future__ import annotations

from typing import get_args

import pytest
from twisted.internet.defer import Deferred

from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.commands import Ack, Command, Confirmation, Continue, Create, Done, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from tests.broadcast.stepped_helpers import Replica
from tests.core.builders import batch, draft, publish


class Ordered(Replica):
    """A replica with a broadcast in memory, and a clock that the test sets."""

    def __init__(self) -> None:
        self.clock = 100.0
        self.limits = Limits(keys_limit=3)
        self.broadcast = MemoryBroadcast(epoch="e1", limits=self.limits, steady_time=lambda: self.clock)
        self.broadcast.start(self)

    def append(self, command: Command) -> Outcome:
        outcomes: list[Outcome] = []
        self.broadcast.append(command, outcomes.append)
        (outcome,) = outcomes
        return outcome

    def end(self) -> Cursor:
        ends: list[Cursor] = []
        self.broadcast.find_end(ends.append)
        (end,) = ends
        return end


def test_each_command_gets_the_next_place_at_once() -> None:
    """One for each message, after an empty state with the given limits."""
    replica = Ordered()
    assert (replica.end(), replica.state.limits) == (Cursor("e1", 0), replica.limits)
    assert replica.append(publish("a")) == Published("e1", 1, 1, 100.0)
    assert replica.append(batch(draft("a"), draft("b"))) == Published("e1", 2, 2, 100.0)
    assert replica.append(publish("a")) == Published("e1", 4, 1, 100.0)
    assert replica.end() == Cursor("e1", 4)


def test_times_never_decrease() -> None:
    """If the clock is set back, time stands still until it has caught up."""
    replica = Ordered()
    times = []
    for replica.clock in (100.0, 90.0, 101.0):
        outcome = replica.append(publish("a"))
        assert isinstance(outcome, Published)
        times.append((outcome.time, replica.broadcast.now()))
    assert times == [(100.0, 100.0), (100.0, 100.0), (101.0, 101.0)]
    replica.clock = 102.0
    assert replica.broadcast.now() == 102.0


def test_the_order_goes_on_under_another_name() -> None:
    replica = Ordered()
    replica.append(publish("a"))
    assert replica.append(Continue("e2")) == Done()
    assert replica.append(publish("a")) == Published("e2", 3, 1, 100.0)
    assert replica.append(Create("b")) != Done()
    assert replica.end() == Cursor("e2", 4)


@pytest.mark.parametrize(
    ("ack", "reached"), [("accepted", "accepted"), ("replicated", "accepted"), ("stable", "stable")]
)
def test_one_node_is_every_node(ack: Ack, reached: Ack) -> None:
    """What it has applied is stable; there are no replicas. It knows of no other node and of no other epoch."""
    replica = Ordered()
    replica.append(publish("a"))
    told: list[Confirmation] = []
    replica.broadcast.confirm(ack, replica.cursor, 1.0, told.append)
    assert told == [Confirmation(reached, replicas=0, nodes=1)]
    assert (replica.broadcast.members(), replica.broadcast.awaits("e2")) == ([], False)
    assert {"accepted", "replicated", "stable"} == {*get_args(Ack)}


def test_nothing_waits_and_nothing_is_in_the_way() -> None:
    """From the first command to the end."""
    replica = Ordered()
    replica.append(publish("a"))
    assert (replica.broadcast.waiting_bytes, replica.broadcast.why_not_ready()) == (0, None)
    assert Deferred.fromCoroutine(replica.broadcast.stop()).called
