"""The seeded simulation of crashes: a real file, and servers that die at any moment and are restarted with it.

After each crash the next server has everything acknowledged; whatever was not acknowledged is there completely or not
at all.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pushup.broadcast.journal import RETRY_SECONDS
from pushup.broadcast.progress_mark import mark_path
from pushup.core.answer import Answer
from pushup.core.attendance import Here, Leave
from pushup.core.commands import Continue, Draft, Entry, Expire, Outcome, Publish, Published
from pushup.core.cursor import Cursor, Start, parse_cursor
from pushup.core.errors import UnknownChannel
from pushup.core.limits import Limits
from pushup.core.poll import Poll, Selection
from pushup.core.state import ReplicatedState
from tests.broadcast.stepped_helpers import FullDisk, JournaledReplica, make_clock
from tests.core.builders import ids, publish, sequence_of
from tests.core.random_entries import NAMES, random_commands

STEPS = 900

LIMITS = {
    "roomy": Limits(retention_seconds=1e6, channel_ttl_seconds=1e6, retention_messages=10_000),
    "short": Limits(retention_seconds=6.0, channel_ttl_seconds=4.0, keys_limit=4),
    "few messages": Limits(retention_seconds=60.0, retention_messages=3, channel_ttl_seconds=40.0),
    "strict": Limits(retention_seconds=30.0, channel_ttl_seconds=20.0, retention_messages=9, strict_channels=True),
}


def append_another(node: JournaledReplica, outcome: Outcome) -> None:
    node.append(publish("a"))


@dataclass
class Publication:
    """A publication, and its outcome if it was reported."""

    command: Publish
    outcomes: list[Outcome]

    @property
    def acknowledged(self) -> Published | None:
        outcome = self.outcomes[0] if self.outcomes else None
        return outcome if isinstance(outcome, Published) else None


@dataclass
class Client:
    """A chain of cursors over some channels."""

    channels: tuple[str, ...]
    cursor: Cursor | Start = Start.EARLIEST
    got: int = 0
    gaps: int = 0


class Simulation:
    """Publishers, clients, a failing disk, and one server after the other.

    `order` is the state that never crashes: it is fed the entries that each server applied, and after a crash those
    that were being written, if the next server has them. `messages` are all messages that were ever in it, by sequence.
    """

    def __init__(self, directory: Path, random: Random, limits: Limits) -> None:
        self.directory = directory
        self.random = random
        self.limits = limits
        self.clock = make_clock()
        self.order = ReplicatedState(limits, epoch="e1")
        self.messages: dict[int, Draft] = {}
        self.publications: list[Publication] = []
        self.clients: list[Client] = []
        self.names = NAMES[:3] if limits.strict_channels else NAMES  # few, so that most of them are open
        self.commands = random_commands(random, names=self.names)
        self.crashes = self.torn = self.found = self.lost = self.full = 0
        self.path = directory / "0"
        self.node = self.start()

    def start(self) -> JournaledReplica:
        """Start the next server, sometimes on a full disk."""
        return JournaledReplica(self.path, limits=self.limits, clock=self.clock, file=self.open_disk)

    def open_disk(self, path: Path) -> FullDisk:
        is_full = self.crashes > 0 and self.random.random() < 0.2  # a new file cannot begin on a full disk
        self.full += is_full
        self.disk = FullDisk(path, full=is_full, after_write=self.random.random() < 0.2)
        return self.disk

    def step(self) -> None:
        random, node = self.random, self.node
        kind = random.random()
        if kind < 0.35:
            self.append()
        elif kind < 0.65:
            if node.helpers.calls:
                node.helpers.step()
        elif kind < 0.85:
            self.poll(self.client())
        elif kind < 0.90:
            self.disk.full = self.disk.full and random.random() < 0.5
            self.clock.advance(random.choice((0.25, RETRY_SECONDS, RETRY_SECONDS)))
        elif kind < 0.92:
            self.trouble()
        elif kind < 0.98:
            self.crash()
        else:
            self.stop()
        self.follow()

    def append(self) -> None:
        seconds, command = next(self.commands)
        self.clock.advance(seconds)
        if isinstance(command, Publish) and self.random.random() < 0.5:
            again = [p.command for p in self.publications[-5:] if p.command.key is not None]
            command = self.random.choice(again or [command])
        outcomes = self.node.append(command)
        if isinstance(command, Publish):
            self.publications.append(Publication(command, outcomes))
            if self.random.random() < 0.3:  # pipelined: the next one follows at once
                self.node.journal.append(Expire(), partial(append_another, self.node))

    def trouble(self) -> None:
        """Let the disk fail or be too slow, in one way or another."""
        helpers = self.node.helpers
        if helpers.calls and helpers.calls[0].result is not None and not self.disk.full:
            self.random.choice((helpers.fail, helpers.fail_after_effect, helpers.give_up))()

    def follow(self) -> None:
        """Feed the reference the entries that the server has applied since, which must have the same outcomes."""
        node = self.node
        for entry, outcome in zip(node.applied, node.outcomes, strict=True):
            assert repr(self.feed(entry)) == repr(outcome)
        node.applied.clear()
        node.outcomes.clear()

    def feed(self, entry: Entry) -> Outcome:
        outcome = self.order.apply(entry)
        if isinstance(outcome, Published) and isinstance(entry.command, Publish) and outcome.sequence == entry.sequence:
            self.messages.update(enumerate(entry.command.messages, entry.sequence))
        elif isinstance(entry.command, Here | Leave):
            told = map(self.order.cache.get, range(entry.sequence, entry.sequence + entry.command.width))
            self.messages.update({m.sequence: Draft(m.channels, m.data, m.attributes) for m in told if m is not None})
        return outcome

    # Clients.

    def client(self) -> Client:
        if len(self.clients) < 6:
            count = self.random.choice((1, 1, 2) if self.limits.strict_channels else (1, 2, 4))
            self.clients.append(Client(tuple(self.random.sample(self.names, count))))
        return self.random.choice(self.clients)

    def poll(self, client: Client) -> bool:
        """Poll once, and check for loss and duplicates; returns whether there may be more messages."""
        now = self.clock.seconds()
        try:
            answer = self.node.polls.subscribe(Poll(Selection(client.channels, 3), client.cursor), 0, now, now)
        except UnknownChannel:
            assert self.limits.strict_channels
            return False
        assert isinstance(answer, Answer)
        before, client.cursor = client.cursor, parse_cursor(answer.cursor)
        assert isinstance(client.cursor, Cursor)
        assert client.cursor.epoch == self.order.cursor.epoch
        client.got += len(answer.messages)
        client.gaps += len(answer.gaps)
        for received in answer.messages:
            assert received.data == self.messages[sequence_of(received.id)].data
        if isinstance(before, Cursor):
            assert client.cursor.sequence >= before.sequence
            seen = range(before.sequence + 1, client.cursor.sequence + 1)
            due = [s for s in seen if s in self.messages and set(self.messages[s].channels) & set(client.channels)]
            durable = [s for s in due if not self.messages[s].is_ephemeral]
            assert ids(answer) == sorted(set(ids(answer)) & set(due))
            assert answer.gaps or set(ids(answer)) >= set(durable)
        return answer.more

    # Shutdown and crash.

    def crash(self) -> None:
        """Kill the server in the middle of its work, and start the next one with what is on the disk."""
        random, node = self.random, self.node
        unknown = self.in_flight()
        log = self.path.with_name(self.path.name + "-wal")
        size = log.stat().st_size
        if node.helpers.calls and random.random() < 0.6:
            node.helpers.do_and_crash()
        self.crashes += 1
        self.path = self.directory / str(self.crashes)
        shutil.copy(log.with_name(log.name.removesuffix("-wal")), self.path)
        copy = self.path.with_name(self.path.name + "-wal")
        shutil.copy(log, copy)
        mark = mark_path(self.path.with_name(log.name.removesuffix("-wal")))
        if mark.exists():
            shutil.copy(mark, mark_path(self.path))
        if copy.stat().st_size > size and random.random() < 0.5:
            self.torn += 1
            with copy.open("r+b") as file:  # only a part of the last write is there
                file.truncate(random.randrange(size, copy.stat().st_size))
        node.file.close()
        self.node = self.start()
        self.compare(unknown)

    def stop(self) -> None:
        """Stop the server in good order, and start the next one with the file."""
        unknown = self.in_flight()
        stopped = self.node.stop()
        self.node.helpers.run()
        assert stopped.called
        self.follow()
        self.node = self.start()
        self.compare([entry for entry in unknown if entry.sequence > self.order.cursor.sequence])

    def in_flight(self) -> list[Entry]:
        """Entries that may be on the disk now or soon without the server knowing: at most one group."""
        entries = list(self.node.file.entries())
        for call in self.node.helpers.calls:
            if call.name == "append":
                entries += call.arguments[0]
        return [entry for entry in entries if entry.sequence > self.order.cursor.sequence]

    def compare(self, unknown: list[Entry]) -> None:
        """Assert that the new server has the whole order, and the unacknowledged group completely or not at all."""
        state = self.node.state
        self.node.check()
        is_named = self.disk.after_write or not self.disk.full  # the new name takes one place
        if unknown and state.cursor.sequence > self.order.cursor.sequence + is_named:
            self.found += 1
            for entry in unknown:
                self.feed(entry)
        elif unknown:
            self.lost += 1
        if is_named:
            self.go_on()
            assert list(self.node.file.entries()) == []
        assert state.snapshot() == self.order.snapshot()

    def go_on(self) -> None:
        """The order goes on under the name that the new server gave it."""
        epoch, sequence = self.order.cursor.epoch, self.order.cursor.sequence
        self.order.apply(Entry(epoch, sequence + 1, self.order.time, Continue(self.node.cursor.epoch)))

    def finish(self) -> None:
        """Stop in good order; then check that everything acknowledged was kept, and that all clients reach the end."""
        self.stop()
        assert self.node.journal.waiting_bytes == 0
        for client in self.clients:
            while self.poll(client):
                pass
            assert self.limits.strict_channels or client.cursor == self.order.cursor
        for publication in self.publications:
            outcome = publication.acknowledged
            if outcome is not None:
                messages = [self.messages[outcome.sequence + n] for n in range(outcome.count)]
                if publication.command.key is None:
                    assert messages == list(publication.command.messages)
        self.node.file.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", LIMITS)
def test_a_crash_loses_nothing_acknowledged(tmp_path: Path, limits: str, seed: int, logged_failures: list[str]) -> None:
    """Acknowledged messages are there or reported as a gap, cursors and keys stay valid, and no sequence is missing."""
    simulation = Simulation(tmp_path, Random(f"{limits} {seed}"), LIMITS[limits])
    for _ in range(STEPS):
        simulation.step()
    simulation.finish()
    assert simulation.crashes > 20
    assert simulation.torn
    assert simulation.found
    assert simulation.full
    assert simulation.lost
    assert len(simulation.messages) > 3
    assert sum(client.got for client in simulation.clients) > 5
    assert all("publishing is refused" in line for line in logged_failures)
    logged_failures.clear()
    if limits == "roomy":
        assert_idempotent(simulation.publications)


def assert_idempotent(publications: list[Publication]) -> None:
    """Unless keys are forgotten, all publications with the same key get the same outcome, on whichever server."""
    received: dict[str, Published] = {}
    repeated = 0
    for publication in publications:
        key, outcome = publication.command.key, publication.acknowledged
        if key is not None and outcome is not None and not publication.command.is_ephemeral:
            assert received.setdefault(key, outcome) == outcome
            repeated += 1
    assert repeated > len(received) > 0
