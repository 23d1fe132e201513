"""The hub as its broadcast sees it: a journal's notes of what has changed, which a state that is handed over shares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from pushup import __version__
from pushup.broadcast.hub.hub import Hub
from pushup.core.commands import Entry, Published
from pushup.core.cursor import Cursor
from pushup.core.snapshot import Changes
from pushup.core.state_transfer import Outgoing
from tests.broadcast.hub.machine import EPOCH, JournaledMachine, Machine, Worker
from tests.core.builders import publish

ONE_BY_ONE = partial(Outgoing, piece=1, last=0)


@pytest.fixture
def machine() -> Machine:
    """A state of ten channels, c1 to c10, that is handed over one by one."""
    machine = Machine(take_out=ONE_BY_ONE)
    change(machine, 10)
    return machine


def change(machine: Machine, times: int) -> None:
    """Publish to as many new channels, named for their sequence."""
    for _ in range(times):
        machine.hub_publishes(publish(f"c{machine.hub.cursor.sequence + 1}"))


def loading(machine: Machine) -> Worker:
    """A worker that has got a few pieces."""
    worker = machine.begin()
    for _ in range(4):
        machine.turn()
    assert worker.states == 0
    return worker


def noted(changes: Changes) -> tuple[list[str], list[int]]:
    """The channels and the messages that have changed."""
    keys = [row.key.split("/") for row in changes.rows]
    return [name for table, name in keys if table == "channels"], [int(n) for table, n in keys if table == "messages"]


def names(first: int, last: int) -> tuple[list[str], list[int]]:
    """What has changed from one sequence to another."""
    return [f"c{number}" for number in range(first, last + 1)], [*range(first, last + 1)]


def check(hub: Hub, saved: int) -> None:
    """The notes are right for a broadcast that has saved all up to this sequence."""
    last = hub.cursor.sequence
    assert noted(hub.changes()) == names(saved + 1, last)
    after = max(saved, last - 1)
    assert noted(hub.changes(after)) == names(after + 1, last)
    assert hub.changes_known_after <= saved
    assert (hub.changed_count > 0) == (last > saved)
    assert last - saved <= hub.changed_count <= 2 * (last - saved)


def test_what_has_changed_since_it_was_saved(machine: Machine) -> None:
    """While nobody loads: also since an earlier place."""
    hub = machine.hub
    hub.note_changes()
    check(hub, 10)
    change(machine, 4)
    check(hub, 10)
    hub.note_changes(12)
    check(hub, 12)
    assert hub.changes_known_after == 12
    assert hub.changed_count == 4


def test_a_state_that_is_handed_over_does_not_disturb_the_notes(machine: Machine) -> None:
    """When it begins, in its course, and when it has ended."""
    hub = machine.hub
    hub.note_changes()
    change(machine, 3)
    worker = loading(machine)
    check(hub, 10)
    change(machine, 2)
    check(hub, 10)
    machine.run()
    assert (worker.serves, worker.equals_hub()) == (True, True)
    check(hub, 10)
    change(machine, 1)
    check(hub, 10)
    hub.note_changes()
    check(hub, 16)


def test_saving_does_not_disturb_a_state_that_is_handed_over(machine: Machine) -> None:
    """What the journal has saved is noted as long as those who load need it, and does not count any more."""
    hub = machine.hub
    hub.note_changes()
    worker = loading(machine)
    change(machine, 3)
    hub.note_changes()
    assert (hub.changed_count, noted(hub.changes())) == (0, ([], []))
    assert hub.changes_known_after == 10
    change(machine, 2)
    check(hub, 13)
    hub.note_changes(14)
    check(hub, 14)
    machine.run()
    assert (worker.serves, worker.equals_hub()) == (True, True)
    check(hub, 14)
    assert hub.changes_known_after == 14


def test_the_notes_stay_when_all_who_load_die(machine: Machine) -> None:
    """Reading ends, and the journal goes on as before."""
    hub = machine.hub
    hub.note_changes()
    worker = loading(machine)
    change(machine, 2)
    hub.note_changes(11)
    worker.end.die()
    check(hub, 11)
    assert hub.changes_known_after == 11
    machine.run()
    change(machine, 2)
    check(hub, 11)


def test_a_hub_without_a_journal(machine: Machine) -> None:
    """Knows what has changed while it hands its state over."""
    loading(machine)
    change(machine, 2)
    hub = machine.hub
    assert (hub.changed_count, noted(hub.changes(11))) == (4, names(12, 12))


def test_what_a_broadcast_asks(machine: Machine) -> None:
    """Of the state; and the outcome of each entry, when it is applied."""
    hub = machine.hub
    assert hub.apply(Entry(EPOCH, 11, hub.state.time, publish("a"))) == Published(EPOCH, 11, 1, hub.state.time)
    assert hub.cursor == Cursor(EPOCH, 11)
    member = hub.member("1")
    assert (member.id, member.cursor, member.version) == ("1", f"{EPOCH}-11", __version__)
    assert (member.name, member.addresses, member.held_polls) == ("", (), 0)


@pytest.fixture
def journaled(tmp_path: Path) -> Iterator[JournaledMachine]:
    machine = JournaledMachine(tmp_path / "journal", take_out=ONE_BY_ONE)
    yield machine
    machine.file.close()


def test_stopping_stops_the_broadcast(journaled: JournaledMachine) -> None:
    journaled.hub_publishes(publish("a"))
    journaled.run_with_disk()
    stopped = Deferred.fromCoroutine(journaled.hub.stop())
    journaled.run_with_disk()
    assert (stopped.called, journaled.helpers.made[-2:]) == (True, ["save", "close"])
