"""A machine in memory: a hub above some broadcast, and workers that follow it; the test makes every turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pushup.broadcast import Broadcast, Follower, Member
from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.hub.hub import Hub
from pushup.broadcast.hub.worker_broadcast import HubBroadcast
from pushup.broadcast.journal import Journal
from pushup.broadcast.journal_file import JournalFile
from pushup.broadcast.journal_start import open_journal
from pushup.broadcast.memory import MemoryBroadcast
from pushup.broadcast.progress_mark import Mark, MarkFile, ProgressMark, mark_path
from pushup.core.commands import Ack, Command, Confirmation, Entry, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from pushup.transport.framed_link import LENGTH_BYTES, Link
from tests.broadcast.stepped_helpers import AtOnce, Replica, SteppedHelpers, name_epoch
from tests.piped_links import BUFFER_BYTES, ENOUGH, PipeEnd, TurnClock, join

EPOCH = "e5"
"""That of a broadcast in memory."""

AHEAD = 1_800_000_000.0
"""The time of entries is ahead of the clock by this, in seconds."""


class Node(Replica):
    """A replica, as a worker's node is one."""

    def __init__(self) -> None:
        self.state = ReplicatedState(Limits())
        self.applied: list[Entry] = []
        self.on_apply: Callable[[Entry], None] = lambda entry: None
        """Called before an entry is applied; may raise."""

    def apply(self, entry: Entry) -> Outcome:
        self.on_apply(entry)
        self.applied.append(entry)
        return super().apply(entry)

    def note_changes(self, after: int | None = None) -> None:
        raise AssertionError("a worker keeps no journal")

    @property
    def changes_known_after(self) -> int:
        raise AssertionError("a worker keeps no journal")

    @property
    def changed_count(self) -> int:
        raise AssertionError("a worker keeps no journal")

    def changes(self, after: int | None = None) -> Changes:
        raise AssertionError("a worker keeps no journal")

    def member(self, id: str) -> Member:  # noqa: A002
        return Member(id, f"node {id}", (), str(self.cursor), 0, "1")


_check: type[Follower] = Node


def bodies_in(data: bytes) -> list[bytes]:
    """The bodies of these frames."""
    bodies = []
    while data:
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        bodies.append(data[LENGTH_BYTES:end])
        data = data[end:]
    return bodies


class Worker:
    """One worker, and both ends of its link; publishers and others who wait for it are answered once."""

    end: PipeEnd
    hub_end: PipeEnd
    link: Link
    hub_link: Link

    def __init__(self, machine: Machine, number: int, *, buffer_bytes: int, waiting_limit_bytes: int) -> None:
        self.name = f"worker {number}"
        self.node = Node()
        self.lost: list[str] = []
        """Why its link has ended, as it was told."""
        self.ended: list[str] = []
        """The same, as the parent was told."""
        self.on_ended: Callable[[str], None] = lambda reason: None
        self.states = 0
        """How often it was told that it can serve clients."""
        self.large = 0
        self._machine = machine
        self._buffer_bytes = buffer_bytes
        self.broadcast = HubBroadcast(
            self._connect,
            worker_id=str(number),
            waiting_limits=WaitingLimits(waiting_limit_bytes=waiting_limit_bytes),
            clock=machine.clock,
            uptime=machine.clock.seconds,
            on_state=self._state_came,
            on_lost=self.lost.append,
            on_large=self._large,
        )
        self.broadcast.start(self.node)

    def _connect(self, link: Link) -> None:
        self.link = link
        self.hub_link = self._machine.hub.attach(self.name, self._ended)
        self.end, self.hub_end = join(link, self.hub_link, self._machine.clock, buffer_bytes=self._buffer_bytes)

    def _ended(self, reason: str) -> None:
        self.ended.append(reason)
        self.on_ended(reason)

    def _state_came(self) -> None:
        assert self.node.cursor.epoch
        self.states += 1

    def _large(self) -> None:
        self.large += 1

    @property
    def serves(self) -> bool:
        return self.states == 1 and not self.end.is_lost

    def append(self, command: Command) -> list[Outcome]:
        """Append a command; the list returned will have its outcome, once this node has applied the entry."""
        outcomes: list[Outcome] = []

        def on_outcome(outcome: Outcome) -> None:
            assert not outcomes, "answered twice"
            outcomes.append(outcome)
            if isinstance(outcome, Published):
                assert self.node.cursor.sequence >= outcome.sequence + outcome.count - 1

        self.broadcast.append(command, on_outcome)
        return outcomes

    def confirm(self, ack: Ack = "stable", seconds: float = 5.0) -> list[Confirmation]:
        """Wait until what was applied here has reached this; the list returned will have what was."""
        confirmations: list[Confirmation] = []

        def on_confirmation(confirmation: Confirmation) -> None:
            assert not confirmations, "answered twice"
            confirmations.append(confirmation)

        self.broadcast.confirm(ack, self.node.cursor, seconds, on_confirmation)
        return confirmations

    def find_end(self) -> list[Cursor]:
        ends: list[Cursor] = []
        self.broadcast.find_end(ends.append)
        return ends

    def equals_hub(self) -> bool:
        self.node.state.check()
        return self.node.state.snapshot() == self._machine.hub.state.snapshot()


class Machine:
    """The hub, its broadcast, and the workers that were started."""

    def __init__(
        self,
        make: Callable[[TurnClock], Broadcast] | None = None,
        take_out: Callable[[ReplicatedState], Outgoing] = Outgoing,
    ) -> None:
        """By default with a broadcast in memory."""
        self.clock = TurnClock()
        self.clock.rightNow = 1000.0
        self.workers: list[Worker] = []
        self.ahead = AHEAD
        memory = MemoryBroadcast(epoch=EPOCH, limits=Limits(), steady_time=lambda: self.clock.seconds() + self.ahead)
        self.broadcast = memory if make is None else make(self.clock)
        self.hub = Hub(self.broadcast, clock=self.clock, uptime=self.clock.seconds, take_out=take_out)
        self.hub.start()

    def begin(self, *, buffer_bytes: int = BUFFER_BYTES, waiting_limit_bytes: int = 1 << 26) -> Worker:
        """Begin a worker, which does not have the state yet."""
        number = len(self.workers) + 1
        worker = Worker(self, number, buffer_bytes=buffer_bytes, waiting_limit_bytes=waiting_limit_bytes)
        self.workers.append(worker)
        return worker

    def start(self, count: int = 1) -> list[Worker]:
        """Start workers, and wait until they serve."""
        workers = [self.begin() for _ in range(count)]
        self.run()
        assert all(worker.serves for worker in workers)
        return workers

    def carry(self, size: int = BUFFER_BYTES) -> int:
        """Let this much arrive, once on each link in each direction."""
        return sum(end.carry(size) for worker in self.workers for end in (worker.end, worker.hub_end))

    def turn(self) -> None:
        self.clock.turn()
        self.carry()

    def run(self) -> None:
        """Turn after turn, until nothing is under way."""
        for _ in range(ENOUGH):
            self.clock.turn()
            if not self.carry() and not self.clock.is_due:
                return
        raise AssertionError("there is no end of it")

    def advance(self, seconds: float) -> None:
        self.clock.rightNow += seconds
        self.run()

    def hub_publishes(self, command: Command) -> Outcome:
        """Let something be appended that no worker has asked for."""
        outcomes: list[Outcome] = []
        self.broadcast.append(command, outcomes.append)
        return outcomes[0] if outcomes else None  # type: ignore[return-value]  # later, with a journal


class JournaledMachine(Machine):
    """A machine with a journal, whose disk the test moves."""

    file: JournalFile

    def __init__(
        self,
        path: Path,
        *,
        waiting_limit_bytes: int = 1 << 26,
        take_out: Callable[[ReplicatedState], Outgoing] = Outgoing,
    ) -> None:
        self.helpers = SteppedHelpers()
        self.limits = Limits(retention_seconds=20.0, channel_ttl_seconds=10.0)

        def open_file(mark: Mark | None) -> tuple[JournalFile, ReplicatedState]:
            self.file, state = open_journal(path, self.limits, name_epoch, mark)
            return self.file, state

        def make(clock: TurnClock) -> Journal:
            return Journal(
                open_file,
                progress_mark=ProgressMark(MarkFile(mark_path(path)), AtOnce(), clock),
                waiting_limits=WaitingLimits(waiting_limit_bytes=waiting_limit_bytes),
                helpers=self.helpers,
                rewriter=self.helpers,
                clock=clock,
                steady_time=lambda: clock.seconds() + AHEAD,
            )

        super().__init__(make, take_out)

    def run_with_disk(self) -> None:
        """As `run`, with a disk that completes every call."""
        for _ in range(ENOUGH):
            self.run()
            if not self.helpers.calls:
                return
            self.helpers.step()
        raise AssertionError("there is no end of it")
