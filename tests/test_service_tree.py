"""Services start in an order, and stop in the reverse one, each when the one before has stopped."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from pushup.service_tree import InOrder, Part, Periodic


class Tree:
    """Services with these names, what they have done, and what they wait for until they have stopped."""

    def __init__(self, *names: str) -> None:
        self.done: list[str] = []
        self.stopping: dict[str, Deferred[None]] = {name: Deferred() for name in names}
        self.root = InOrder(*map(self.part, names))

    def part(self, name: str) -> Part:
        async def stop() -> None:
            self.done.append(f"stop {name}")
            await self.stopping[name]

        return Part(lambda: self.done.append(f"start {name}"), stop)


def test_one_after_the_other() -> None:
    """A part stops only when the one that started after it has stopped."""
    tree = Tree("a", "b", "c")
    tree.root.startService()
    assert tree.done == ["start a", "start b", "start c"]
    stopped = tree.root.stopService()
    assert tree.done[3:] == ["stop c"]
    tree.stopping["c"].callback(None)
    assert tree.done[3:] == ["stop c", "stop b"]
    tree.stopping["b"].callback(None)
    assert not stopped.called
    tree.stopping["a"].callback(None)
    assert tree.done[3:] == ["stop c", "stop b", "stop a"]
    assert stopped.called


def test_one_that_cannot_start() -> None:
    """Its error is raised, those after it do not start, and only those before it stop."""
    tree = Tree("a", "c")
    tree.root.services.insert(1, Part(lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        tree.root.startService()
    for stopping in tree.stopping.values():
        stopping.callback(None)
    tree.root.stopService()
    assert tree.done == ["start a", "stop a"]


def test_one_that_cannot_stop(logged_failures: list[str]) -> None:
    """It is logged, and the others stop."""
    tree = Tree("a", "b")
    tree.root.startService()
    tree.stopping["b"].errback(OSError("no disk"))
    tree.stopping["a"].callback(None)
    assert tree.root.stopService().called
    assert tree.done[2:] == ["stop b", "stop a"]
    assert len(logged_failures) == 1
    assert "no disk" in logged_failures[0]
    logged_failures.clear()


def test_a_part_that_was_stopped_before_is_not_stopped_again() -> None:
    tree = Tree("a", "b")
    tree.root.startService()
    for stopping in tree.stopping.values():
        stopping.callback(None)
    tree.root.services[1].stopService()
    tree.root.stopService()
    assert tree.done[2:] == ["stop b", "stop a"]


@pytest.mark.parametrize("at_once", [True, False])
def test_periodic(at_once: bool) -> None:
    """It is called from start to stop, and leaves no timer."""
    clock = Clock()
    times: list[float] = []
    periodic = Periodic(lambda: times.append(clock.seconds()), 2.0, clock, if_it_fails="it failed", at_once=at_once)
    assert clock.getDelayedCalls() == []
    periodic.startService()
    clock.pump([1.0] * 5)
    periodic.stopService()
    clock.pump([1.0] * 5)
    assert times == [0.0, 2.0, 4.0][not at_once :]
    assert clock.getDelayedCalls() == []


def test_a_periodic_call_that_fails(logged_failures: list[str]) -> None:
    """That is logged, with what it means."""
    clock = Clock()

    def fail() -> None:
        raise OSError("no clock")

    periodic = Periodic(fail, 2.0, clock, if_it_fails="nothing is watched any more")
    periodic.startService()
    clock.advance(2.0)
    assert len(logged_failures) == 1
    assert "nothing is watched any more" in logged_failures[0]
    logged_failures.clear()
    clock.advance(10.0)
    periodic.stopService()
