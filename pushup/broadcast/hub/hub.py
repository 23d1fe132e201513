"""The parent's side: it follows the broadcast of this machine as a node does, and passes each entry on to the workers.

It applies entries to a state of its own, so that a worker that starts later can get it, and nothing depends on the
workers: if all of them die, the state is still here. Why: docs/internals/decisions/0018-workers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from msgspec import DecodeError, Struct
from prometheus_client.core import GaugeMetricFamily
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup import __version__
from pushup.broadcast import Broadcast, Follower, HoldsState, Member
from pushup.broadcast.hub import frames
from pushup.broadcast.work_budget import Turns, units_of
from pushup.core.commands import Command, Entry, Outcome
from pushup.core.errors import PushUpError
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import Outgoing
from pushup.metrics import Metric
from pushup.service_tree import Periodic
from pushup.transport.framed_link import Link

BEAT_SECONDS = 1.0
"""How often workers get the time and each other's state: the parent's heartbeat."""

COMMANDS = 1 << 32
"""How many numbers each worker has for its commands."""

_log = Logger()


class Attached(Struct, eq=False):
    """A worker: its link, and what it last reported about itself."""

    name: str
    link: Link
    turns: Turns
    member: Member | None = None
    """None until it has restored the state. With its first report it begins to count for `stable`, then to serve."""
    applied: int = 0
    """The last entry that it had applied when it last reported, and how many it had not."""
    lag: int = 0
    reported_at: float = 0.0


class _Confirming(Struct):
    """A worker that wants to know when all of them have passed a mark, and those that have not."""

    asker: Attached
    number: int
    waiting: set[Attached]
    workers: int


class Hub(HoldsState):
    """Joins one broadcast, which gives it its state, and many workers."""

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        clock: IReactorTime,
        uptime: Callable[[], float],
        on_large: Callable[[], None] = lambda: None,
        take_out: Callable[[ReplicatedState], Outgoing] = Outgoing,
    ) -> None:
        """`uptime`: seconds by a clock that the workers have as well, and that is never set.

        `on_large` is called when the state, which may be large, is going to be handed over, `take_out` then makes its
        pieces.
        """
        self._broadcast = broadcast
        self._clock = clock
        self._uptime = uptime
        self._on_large = on_large
        self._take_out = take_out
        self._last_outcome: Outcome | None = None
        self._batch = frames.EntryBatch()  # of this batch of events, sent to nobody yet
        self._first_numbers = count(COMMANDS, COMMANDS)
        self._workers: list[Attached] = []  # those that have the state, and get every entry
        self._newcomers: list[Attached] = []  # those that wait for it
        self._loading: list[Attached] = []  # those that are getting it, all the same pieces
        self._is_pausing = False  # the next piece comes in the next turn
        self._marks = count(1)
        self._confirming: dict[int, _Confirming] = {}
        self._beating = Periodic(
            self._beat,
            BEAT_SECONDS,
            clock,
            if_it_fails="heartbeats to the workers failed: they stop serving publishers; restart the server",
        )

    def start(self) -> None:
        """Start the broadcast. Raises: what `Broadcast.start` does."""
        self._broadcast.start(self)
        self._beating.startService()

    async def stop(self) -> None:
        """Stop the broadcast, once the workers have ended."""
        self._beating.stopService()
        await self._broadcast.stop()

    @property
    def confirming_count(self) -> int:
        """How many confirmations workers have asked for, and were not sent."""
        return len(self._confirming)

    def metrics(self) -> Iterator[Metric]:
        """Those of the broadcast, and how far the workers lag behind."""
        yield from self._broadcast.metrics()
        text = "Entries that a worker had not applied when it last reported to the parent process, or since"
        lag = GaugeMetricFamily("pushup_worker_lag_entries", text, labels=("worker",))
        for worker in [worker for worker in self._workers if worker.member is not None]:
            is_silent = self._clock.seconds() > worker.reported_at + 2 * BEAT_SECONDS
            entries = self.cursor.sequence - worker.applied if is_silent else worker.lag
            lag.add_metric((worker.name.removeprefix("worker "),), entries)
        yield lag

    def why_not_ready(self) -> PushUpError | None:
        """Why commands are refused, if they are."""
        return self._broadcast.why_not_ready()

    def attach(self, name: str, on_end: Callable[[str], None]) -> Link:
        """The link to a new worker, to be connected in this turn; `on_end` is called with the reason when it ends."""

        def ended(reason: str) -> None:
            on_end(reason)  # first: one that is given up must not serve anybody when it counts no more
            self._detach(worker)

        link = Link(lambda body: self._received(worker, body), ended)
        worker = Attached(name, link, Turns(link, self._clock))
        link.on_flush = self._pass_on
        link.on_room = self._hand_over
        self._newcomers.append(worker)
        self._clock.callLater(0, self._welcome)
        return worker.link

    def _detach(self, worker: Attached) -> None:
        for workers in (self._workers, self._newcomers, self._loading):
            if worker in workers:
                workers.remove(worker)
        for number, confirming in list(self._confirming.items()):
            self._passed(worker, number)
            if confirming.asker is worker:
                self._confirming.pop(number, None)
        if self.outgoing is not None and not self._loading:
            self._handed_over()
        self._hand_over()  # others may have waited until this one could take the next piece

    # What workers say.

    def _received(self, worker: Attached, body: bytes) -> None:
        try:
            message = frames.read_by_parent(body)
        except DecodeError as error:
            _log.error(
                "malformed message from {name}: {error} (please report this as a bug)", name=worker.name, error=error
            )
            worker.link.abort("it sent a malformed message")
            return
        match message:
            case frames.Append(number, commands):
                worker.turns.do(self._append(worker, number, commands))
            case frames.FindEnd():
                self._broadcast.find_end(lambda end: self._send(worker, frames.End(end.epoch, end.sequence)))
            case frames.Confirm(number):
                self._confirm(worker, number)
            case frames.Passed(number):
                self._passed(worker, number)
            case frames.Present(member):
                is_new, worker.member = worker.member is None, member
                worker.applied = int(member.cursor.rpartition("-")[2])
                worker.lag, worker.reported_at = self.cursor.sequence - worker.applied, self._clock.seconds()
                if is_new:
                    self._beat()  # behind all that was `stable` without it; with this it serves

    def _append(self, worker: Attached, first: int, commands: tuple[Command, ...]) -> Iterator[int]:
        for number, command in enumerate(commands, first):
            yield units_of(command)
            self._broadcast.append(command, partial(self._decided, worker, number))

    def _decided(self, worker: Attached, number: int, outcome: Outcome) -> None:
        """A worker's command has its outcome: that of the entry that was just applied, or a refusal."""
        if outcome is self._last_outcome:
            self._batch.note_number(number)
        else:
            assert isinstance(outcome, PushUpError)
            self._send(worker, frames.Refused(number, frames.Trouble.of(outcome)))

    def _confirm(self, worker: Attached, number: int) -> None:
        mark = next(self._marks)
        waiting = {each for each in self._workers if each.member is not None}
        self._confirming[mark] = _Confirming(worker, number, waiting, len(waiting))
        for each in tuple(waiting):
            self._send(each, frames.Mark(mark))

    def _passed(self, worker: Attached, number: int) -> None:
        confirming = self._confirming.get(number)
        if confirming is not None:
            confirming.waiting.discard(worker)
            if not confirming.waiting:
                del self._confirming[number]
                self._send(confirming.asker, frames.Confirmed(confirming.number, confirming.workers))

    def _send(self, worker: Attached, message: frames.ToWorker) -> None:
        self._pass_on()
        worker.link.send(frames.frame(message))

    def _beat(self) -> None:
        trouble = self._broadcast.why_not_ready()
        serving = {worker.link: worker.member for worker in self._workers if worker.member is not None}
        told = None if trouble is None else frames.Trouble.of(trouble)
        self._pass_on()
        beat = frames.frame(frames.Beat(self._broadcast.now() - self._uptime(), told, tuple(serving.values())))
        for link in serving:
            link.send(beat)

    # Handing the state over to new workers.

    def _welcome(self) -> None:
        """Begin to hand the state over, to all who wait for it, unless that is under way.

        One that is not connected by now has no process: it could not be started.
        """
        if self.outgoing is None:
            self._loading, self._newcomers = [worker for worker in self._newcomers if worker.link.is_open], []
            if not self._loading:
                return
            for worker in self._loading:
                worker.link.send(frames.frame(frames.Welcome(next(self._first_numbers))))
            self._on_large()
            self.read_out(self._take_out)
            self._hand_over()

    def _hand_over(self) -> None:
        """Send the next piece, once all who load can take it; others get their turn before the one after it."""
        if self.outgoing is None or self._is_pausing or any(worker.link.is_full for worker in self._loading):
            return
        piece = self.outgoing.next()
        is_last = isinstance(piece, Changes)
        body = frames.frame(frames.Last(piece) if isinstance(piece, Changes) else frames.Part(piece))
        for worker in self._loading:
            worker.link.send(body)
        if is_last:
            self._pass_on()  # what the state contains already
            self._workers += self._loading
            self._handed_over()
        else:
            self._is_pausing = True
            self._clock.callLater(0, self._go_on)

    def _go_on(self) -> None:
        self._is_pausing = False
        self._hand_over()

    def _handed_over(self) -> None:
        self._loading = []
        self.was_read()
        self._clock.callLater(0, self._welcome)

    # What the broadcast follows (`pushup.broadcast.Follower`).

    def apply(self, entry: Entry) -> Outcome:
        """Apply the next entry here; at the end of this batch of events it is passed on with the others."""
        outcome = self._last_outcome = self.state.apply(entry)
        if self._workers:
            if self._batch.bytes > frames.BATCH_BYTES:
                self._pass_on()
            if not self._batch.entries:
                for worker in self._workers:
                    worker.link.flush_soon()
            self._batch.add(entry)
        return outcome

    def _pass_on(self) -> None:
        """Send the entries that wait for it, before anything else is sent."""
        if self._batch.entries:
            body, self._batch = self._batch.frame(), frames.EntryBatch()
            for worker in self._workers:
                worker.link.send(body)

    def start_from(self, state: ReplicatedState) -> None:
        """Called once, before there are workers."""
        assert not self._workers
        self.state = state

    def member(self, id: str) -> Member:  # noqa: A002
        return Member(id, "", (), str(self.cursor), 0, __version__)


_check: type[Follower] = Hub
