"""What one node does for all: saves, changes the version or the limits, and gives up a log that nobody can read."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.broadcast.redis.leader import SETTLED_SECONDS, STUCK_SECONDS, FirstNode
from pushup.broadcast.redis.records import NodeReport, Report, Tail
from pushup.broadcast.redis.replica import Diverged
from pushup.core.commands import Configure, Upgrade
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.snapshot import encode
from tests.net.observed_log import logged_at

OWN, OTHER = Limits(), Limits(retention_messages=5)


class Situation:
    """A node that is the first of two, at e1-5; `done` is what it does. It stands in for all that it uses."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.done: list[Any] = []
        self.due = False
        # As a replica and its follower.
        self.cursor = Cursor("e1", 5)
        self.tag = b"m"
        self.stuck_at = "e1-6"
        self.version = 2
        self.limits = OWN
        self.changes_known_after = 3
        self.follower = self.state = self
        # As a log.
        self.run = "run"
        self.report = Report(Tail("e1", 5, b"m", "run", 2), 3, True, 0.0, False, [])
        node = NodeReport("a", "", (), "e1-5", 0, "0.2", latest_version=2, limits=Raw(encode(OWN)))
        self.nodes = [node, replace(node, id="b")]
        anything = cast("Any", self)
        self._first = FirstNode(node_id="a", replica=anything, saver=anything, clock=self.clock)

    def is_due(self, saved: int) -> bool:
        assert saved == self.report.saved
        return self.due

    async def save(self, log: object, saved: int) -> None:
        self.done.append(("save", saved))

    async def begin_epoch(self, log: object, over: str, reason: str) -> None:
        self.done.append(("begin", over, reason))

    def forget(self) -> None:
        self.done.append("forget")

    async def switch(self, after: bytes, tag: str, command: object, **fields: str) -> bool:
        self.done.append((after, tag, command, fields))
        return True

    def all_nodes(self, **fields: Any) -> None:
        self.nodes = [replace(node, **fields) for node in self.nodes]

    def act(self, after: float = 0.0) -> list[Any]:
        """Report after so many seconds; returns what is done then."""
        self.clock.advance(after)
        self.done.clear()
        ended: list[Any] = []
        anything = cast("Any", self)
        Deferred.fromCoroutine(self._first.act(anything, self.report, self.nodes)).addBoth(ended.append)
        (result,) = ended
        return [*self.done, result.type] if isinstance(result, Failure) else list(self.done)

    def act_for(self, seconds: float) -> list[Any]:
        """Report every half second, for so long; returns all that is done."""
        return [done for _ in range(round(2 * seconds)) for done in self.act(0.5)]


@pytest.fixture
def first() -> Situation:
    return Situation()


@pytest.mark.parametrize(("epoch", "saves"), [("e0", False), ("e1", True), ("e2", False)])
def test_a_save_that_is_due(first: Situation, epoch: str, saves: bool) -> None:
    """It is made if the log is in the epoch that this node follows."""
    assert first.act() == []
    first.due = True
    first.report = replace(first.report, tail=replace(first.report.tail, epoch=epoch))
    assert first.act() == ([("save", 3)] if saves else [])


def test_nothing_is_saved_while_a_node_loads(first: Situation) -> None:
    """Redis would refuse it, after all that has changed since the last save was sent."""
    first.due = True
    first.report = replace(first.report, is_loading=True)
    assert first.act() == []
    first.report = replace(first.report, is_loading=False)
    assert first.act() == [("save", 3)]


@pytest.mark.parametrize(("saved", "done"), [(2, ["forget", Diverged]), (3, [("save", 3)]), (4, [("save", 4)])])
def test_a_checkpoint_older_than_what_is_remembered(first: Situation, saved: int, done: list[Any]) -> None:
    """Redis has lost the last save: what has changed since is not known here, and the node loads everything."""
    first.due = True
    first.report = replace(first.report, saved=saved)
    assert first.act() == done


def test_a_version_that_all_nodes_know(first: Situation) -> None:
    """The log gets it when it has been so for as long as a lease; a node of another release may have one."""
    first.version = 1
    assert first.act() == []
    assert first.act(SETTLED_SECONDS - 0.5) == []
    with logged_at("info") as lines:
        assert first.act(0.5) == [(b"m", "a.2.e1-5", Upgrade(2), {"version": "2", "run": "run"})]
    assert ["uses version 2 of the state machine" in line for line in lines] == [True]


def test_a_version_that_one_node_does_not_know(first: Situation) -> None:
    """The log stays as it is, and does not go back either."""
    first.nodes[1] = replace(first.nodes[1], latest_version=1)
    for version in (1, 2):
        first.version = version
        assert first.act_for(10.0) == []


def test_limits_that_all_nodes_have(first: Situation) -> None:
    """The log gets them when it has been so for a while; when they are those of the log, nothing has to be done."""
    assert first.act_for(10.0) == []
    first.all_nodes(limits=Raw(encode(OTHER)))
    assert first.act() == []
    assert first.act(SETTLED_SECONDS - 0.5) == []
    with logged_at("info") as lines:
        assert first.act(0.5) == [(b"m", "a.2.e1-5", Configure(OTHER), {})]
    assert ["uses the limits of their settings" in line for line in lines] == [True]
    assert first.act(0.5) == [(b"m", "a.2.e1-5", Configure(OTHER), {})]  # if another entry came before


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("limits", [OWN, Limits(retention_messages=6)])
def test_limits_that_one_node_does_not_have(first: Situation, which: int, limits: Limits) -> None:
    """The log stays as it is."""
    first.all_nodes(limits=Raw(encode(OTHER)))
    first.nodes[which] = replace(first.nodes[which], limits=Raw(encode(limits)))
    assert first.act_for(10.0) == []


@pytest.mark.parametrize("tag", [b"a", b"z"])
def test_a_change_follows_the_last_entry_that_this_node_has_applied(first: Situation, tag: bytes) -> None:
    """While the log has another one at its end, or a node may be missing from the list, nothing is changed."""
    first.all_nodes(limits=Raw(encode(OTHER)))
    report = first.report
    first.report = replace(report, tail=replace(report.tail, tag=tag))
    assert first.act_for(10.0) == []
    first.report = replace(report, complete=False)
    assert first.act_for(10.0) == []


def test_an_entry_that_no_node_can_read(first: Situation) -> None:
    """The log is given up when all have been at it for a while."""
    first.all_nodes(stuck_at="e1-9")
    assert first.act() == []
    first.all_nodes(stuck_at="e1-6")  # another one
    assert first.act(STUCK_SECONDS) == []
    assert first.act(STUCK_SECONDS - 0.5) == []
    assert first.act(0.5) == [("begin", "e1", "no node can read the entry e1-6")]
    assert first.act(0.5) == [("begin", "e1", "no node can read the entry e1-6")]  # if that failed


def test_an_epoch_that_has_another_name_by_now(first: Situation) -> None:
    """It is given up under that name: nodes that are stuck have not read it."""
    first.all_nodes(stuck_at="e1-6")
    first.report = replace(first.report, tail=Tail("e2", 9, b"z", "run", 2))
    assert first.act() == []
    assert first.act(STUCK_SECONDS) == [("begin", "e2", "no node can read the entry e1-6")]


@pytest.mark.parametrize("other", ["", "e1-7"])
def test_an_entry_that_one_node_cannot_read(first: Situation, other: str) -> None:
    """The log stays, also where each node is at another entry, and while a node may be missing from the list."""
    first.nodes[0] = replace(first.nodes[0], stuck_at="e1-6")
    first.nodes[1] = replace(first.nodes[1], stuck_at=other)
    assert first.act_for(2 * STUCK_SECONDS) == []
    first.all_nodes(stuck_at="e1-6")
    first.report = replace(first.report, complete=False)
    assert first.act_for(2 * STUCK_SECONDS) == []
