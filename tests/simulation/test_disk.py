"""Simulated disks: what is on them after a process has died, and when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.core.commands import Entry, Expire
from tests.simulation.disk import Disk, SimulatedHelpers
from tests.simulation.world import START, Process, World

KILLED = "a process was killed while it wrote to its disk"


class Machine:
    """A disk, the process that uses it now, and what that was told."""

    def __init__(self) -> None:
        self.world = World("test")
        self.disk = Disk(self.world, "n0")
        self.results: list[str] = []
        self.start()

    def start(self) -> JournalFile:
        self.process = Process(self.world, "n0")
        self.helpers = SimulatedHelpers(self.process, self.disk)
        self.file = self.disk.open(self.process)(Path("journal.db"))
        return self.file

    def call(self, function: Callable[[], object]) -> None:
        self.helpers.call(function).addCallbacks(
            lambda value: self.results.append(str(value)),
            lambda failure: self.results.append(failure.getErrorMessage()),
        )

    def append(self, sequence: int) -> None:
        self.call(lambda: self.file.append((Entry("e", sequence, START, Expire()),)) and sequence)

    def sequences(self) -> list[int]:
        return [entry.sequence for entry in self.file.entries()]

    def run(self, seconds: float = 1.0) -> None:
        self.world.run(self.world.now + seconds)


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.disk.close()


def test_calls_take_effect_later_and_in_order(machine: Machine) -> None:
    """And are reported after that; the next one begins when the one before it is reported."""
    for sequence in (1, 2, 3):
        machine.append(sequence)
    assert (machine.sequences(), machine.results) == ([], [])
    machine.run()
    assert (machine.sequences(), machine.results) == ([1, 2, 3], ["1", "2", "3"])


@pytest.mark.parametrize(("moment", "on_disk", "counted"), [("before", [], 1), ("between", [1], 0), ("after", [1], 0)])
def test_a_process_that_dies(machine: Machine, moment: str, on_disk: list[int], counted: int) -> None:
    """Before the effect nothing is written; between effect and report it is, but nobody knows."""
    machine.append(1)
    while moment == "between" and not machine.sequences():
        machine.run(1e-5)
    if moment == "after":
        machine.run()
    machine.process.die()
    machine.run()
    machine.start()
    assert machine.sequences() == on_disk
    assert machine.results == (["1"] if moment == "after" else [])
    assert machine.world.reached.get(KILLED, 0) == counted


def test_a_process_that_dies_in_a_transaction(machine: Machine) -> None:
    """What it had not committed is gone when the next one opens the journal."""
    machine.disk.execute("BEGIN IMMEDIATE")
    machine.file.append((Entry("e", 1, START, Expire()),))
    assert machine.disk.in_transaction
    machine.process.die()
    machine.start()
    assert machine.sequences() == []
    assert not machine.disk.in_transaction


def test_a_paused_process_writes_when_it_is_resumed(machine: Machine) -> None:
    """Its threads are paused, too."""
    machine.append(1)
    machine.process.pause()
    machine.run()
    assert machine.sequences() == []
    machine.process.resume()
    machine.run()
    assert (machine.sequences(), machine.results) == ([1], ["1"])


@pytest.mark.parametrize(("failing", "says"), [("full", "the disk is full"), ("broken", "SQLITE_IOERR_WRITE")])
def test_a_disk_that_fails(machine: Machine, failing: str, says: str) -> None:
    """As SQLite reports it; reading works, a journal cannot be opened, and it is as before when the disk is mended."""
    machine.append(1)
    machine.run()
    machine.disk.failing = failing
    machine.append(2)
    machine.run()
    assert machine.results[0] == "1"
    assert says in machine.results[1]
    assert machine.sequences() == [1]
    machine.process.die()
    with pytest.raises(JournalError, match=failing):
        machine.start()
    machine.disk.failing = ""
    machine.start()
    machine.append(2)
    machine.run()
    assert machine.sequences() == [1, 2]


def test_a_disk_that_is_unsure(machine: Machine) -> None:
    """What was written is there, although the call has failed."""
    machine.disk.failing = "unsure"
    machine.append(1)
    machine.run()
    assert "SQLITE_IOERR_WRITE" in machine.results[0]
    assert machine.sequences() == [1]


def test_a_slow_disk(machine: Machine) -> None:
    machine.disk.slow = 0.5
    machine.append(1)
    machine.run(0.5)
    assert machine.sequences() == []
    machine.run(0.1)
    assert machine.sequences() == [1]


def test_the_next_call_is_told_of(machine: Machine) -> None:
    """Once, with the seconds until it is reported: to kill its process during it."""
    told: list[float] = []
    machine.disk.on_call = told.append
    machine.append(1)
    machine.append(2)
    assert len(told) == 1
    machine.run(told[0] - 1e-6)
    assert machine.results == []
    machine.run(1e-5)
    assert machine.results == ["1"]


def test_a_journal_that_is_put_back(machine: Machine) -> None:
    """It is what it was; not while a process has it open."""
    machine.append(1)
    machine.run()
    backup = machine.disk.backup()
    machine.append(2)
    machine.run()
    with pytest.raises(AssertionError):
        machine.disk.put_back(backup)
    machine.process.die()
    machine.disk.put_back(backup)
    machine.start()
    assert machine.sequences() == [1]
    machine.file.close()
    machine.disk.put_back(backup)  # closed in good order
