"""Random orders of everything that can happen: workers come and die, the state changes, links fill, the disk fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pushup.broadcast import work_budget
from pushup.core.commands import Confirmation, Continue, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import Unavailable
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from tests.broadcast.hub.machine import JournaledMachine, Machine, Worker
from tests.broadcast.stepped_helpers import after_restart, name_epoch
from tests.core.random_entries import random_commands

STEPS = 400


class Play:
    """A machine on which things happen at random; after each of them, what was promised is checked."""

    def __init__(self, random: Random, machine: Machine) -> None:
        self.random = random
        self.machine = machine
        self.commands = random_commands(random, names=tuple(f"c{number}" for number in range(12)))
        self.asked: list[tuple[Worker, list[Outcome]]] = []
        self.confirming: list[tuple[Worker, Cursor, list[Confirmation]]] = []
        self.confirmed = 0

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.machine.workers if not worker.end.is_lost]

    @property
    def serving(self) -> list[Worker]:
        return [worker for worker in self.alive if worker.states]

    def append(self) -> None:
        if self.serving:
            worker = self.random.choice(self.serving)
            self.asked.append((worker, worker.append(next(self.commands)[1])))

    def continue_(self) -> None:
        if self.random.random() < 0.1:
            self.machine.hub_publishes(Continue(name_epoch(self.machine.hub.cursor.epoch)))

    def confirm(self) -> None:
        if self.serving:
            worker = self.random.choice(self.serving)
            self.confirming.append((worker, worker.node.cursor, worker.confirm(seconds=self.random.choice((0.2, 9.0)))))

    def begin(self) -> None:
        if len(self.alive) < 4:
            self.machine.begin(buffer_bytes=self.random.choice((50, 500, 65536)))

    def die(self) -> None:
        if self.alive and self.random.random() < 0.3:
            worker = self.random.choice(self.alive)
            self.random.choice((worker.end.die, worker.hub_end.die))()

    def turn(self) -> None:
        self.machine.clock.turn()

    def carry(self) -> None:
        if self.alive:
            worker = self.random.choice(self.alive)
            self.random.choice((worker.end, worker.hub_end)).carry(self.random.choice((1, 60, 5000)))

    def block(self) -> None:
        """What a worker says does not get to the parent for a while."""
        if self.alive:
            end = self.random.choice(self.alive).hub_end
            end.is_reading = not end.is_reading

    def pass_time(self) -> None:
        self.machine.clock.rightNow += self.random.choice((0.01, 0.1, 0.3, 1.0))

    def check(self) -> None:
        """Nobody was told that an entry is stable that a worker has not which serves."""
        waiting = []
        for worker, cursor, told in self.confirming:
            if not told:
                waiting.append((worker, cursor, told))
            elif told[0].ack == "stable":
                self.confirmed += 1
                assert all(other.node.cursor.sequence >= cursor.sequence for other in self.serving)
        self.confirming = waiting

    def play(self, more: list[Callable[[], None]]) -> None:
        """`more` that can happen."""
        often = [self.append, self.append, self.carry, self.carry, self.carry, self.turn, self.turn, self.confirm]
        seldom = [self.begin, self.block, self.pass_time, self.pass_time, self.die, self.continue_]
        for _ in range(STEPS):
            self.random.choice(often * 3 + seldom + more)()
            self.check()
        for worker in self.alive:
            worker.hub_end.is_reading = True

    def end(self) -> None:
        """Everything has come to rest: all are answered, and equal."""
        for worker, outcomes in self.asked:
            (outcome,) = outcomes
            if isinstance(outcome, Published):
                assert outcome.sequence + outcome.count - 1 <= worker.node.cursor.sequence
            elif isinstance(outcome, Unavailable):
                is_explained = worker.end.is_lost or "has not responded for" in outcome.operator_detail
                assert is_explained or isinstance(self.machine, JournaledMachine)
        for worker in self.alive:
            assert worker.serves, worker.name
            assert worker.equals_hub(), worker.name
            assert worker.broadcast.waiting_bytes == 0
            applied = [(entry.epoch, entry.sequence) for entry in worker.node.applied]
            assert len({*applied}) == len(applied)
        assert self.machine.hub.confirming_count == 0


@pytest.fixture
def random(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Random:
    """With it, it is chosen how many turns it takes to restore the state."""
    random = Random(request.node.name)
    monkeypatch.setattr(work_budget, "TURN_UNITS", random.choice((2, 20, 1500)))
    return random


def in_pieces(random: Random) -> Callable[[ReplicatedState], Outgoing]:
    """Makes pieces of some size."""
    return partial(Outgoing, piece=random.choice((1, 3, 20)), last=random.choice((0, 5, 50)))


@pytest.mark.parametrize("seed", range(25))
def test_with_a_broadcast_in_memory(random: Random, seed: int, log: list[str]) -> None:
    """All publishers are answered once, and all workers are equal. None waits for a parent that is not heard."""
    play = Play(random, Machine(take_out=in_pieces(random)))
    play.play([])
    play.machine.run()
    play.machine.advance(10.0)
    play.end()
    assert all(worker.broadcast.why_not_ready() is None for worker in play.alive)
    assert all("has not responded for" in line for line in log)


@pytest.mark.parametrize("seed", range(25))
def test_with_a_journal(random: Random, seed: int, tmp_path: Path, logged_failures: list[str]) -> None:
    """Likewise; and what is in the journal is the state, though its changes were noted for two at once."""
    path = tmp_path / "journal"
    machine = JournaledMachine(path, take_out=in_pieces(random))
    play = Play(random, machine)

    def step() -> None:
        if machine.helpers.calls:
            machine.helpers.step()

    def fail() -> None:
        if machine.helpers.calls and machine.helpers.names[0] != "close" and random.random() < 0.1:
            random.choice((machine.helpers.fail, machine.helpers.fail_after_effect))()

    play.play([step] * 8 + [fail])
    for _ in range(3):
        machine.run_with_disk()
        machine.advance(5.0)
    play.end()
    logged_failures.clear()
    before = machine.hub.state.snapshot()
    machine.file.close()
    again = JournaledMachine(path)
    again.file.close()
    assert again.hub.state.snapshot() == after_restart(before)
