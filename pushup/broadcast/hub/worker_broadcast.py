"""The worker's side: the broadcast that a worker's node sees. The order itself is in the parent process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.broadcast import Broadcast, Follower, Member, OnConfirmation, OnEnd, OnOutcome
from pushup.broadcast.admission import WaitingLimits
from pushup.broadcast.hub import frames
from pushup.broadcast.hub.hub import BEAT_SECONDS
from pushup.broadcast.hub.pending_commands import PendingCommands
from pushup.broadcast.work_budget import Pace, Turns, free, restored, work_of
from pushup.core.commands import Ack, Command, Confirmation, Entry
from pushup.core.cursor import Cursor, order_of
from pushup.core.errors import PushUpError, Refusal
from pushup.core.snapshot import Changes, Snapshot, Tables
from pushup.service_tree import Periodic
from pushup.transport.framed_link import Link, Silence

SILENCE_SECONDS = 5.0
"""If nothing comes from the parent for this long, this worker is not ready, and its publishers are answered: 503."""

LARGE_PIECES = 100
"""After so many pieces of the state, again and again, much is in memory that need not be searched for garbage."""

UNKNOWN_EPOCHS = 100
"""Names of epochs that do not exist, which clients have sent: so many are asked about at a time, and remembered."""

_log = Logger()


class HubBroadcast:
    """The order of one machine, followed by one of its workers."""

    _follower: Follower  # set by `start`

    def __init__(
        self,
        connect: Callable[[Link], object],
        *,
        worker_id: str,
        waiting_limits: WaitingLimits,
        clock: IReactorTime,
        uptime: Callable[[], float],
        on_state: Callable[[], None] = lambda: None,
        on_lost: Callable[[str], None],
        on_large: Callable[[], None] = lambda: None,
    ) -> None:
        """`connect` connects a link to the parent; `on_lost` is called with the reason when that has ended, and
        `on_state` when this worker can serve clients.

        `uptime`: as for the `Hub`. `on_large` is called while a large state comes, and when it was restored.
        """
        self._connect = connect
        self.node_id = worker_id
        self._clock = clock
        self._uptime = uptime
        self._on_state = on_state
        self._on_lost = on_lost
        self._on_large = on_large
        self._link = Link(self._received, self._ended)
        self._turns = Turns(self._link, clock)
        self._commands = PendingCommands(self._link, waiting_limits)
        self._link.on_flush = self._commands.send
        self._ends: deque[OnEnd] = deque()
        self._asked_epochs: set[str] = set()  # the parent has been asked about them, and has not answered yet
        self._unknown_epochs: deque[str] = deque(maxlen=UNKNOWN_EPOCHS)
        self._marks = count(1)
        self._confirmations: dict[int, tuple[OnConfirmation, IDelayedCall]] = {}
        self._pieces = 0
        self._incoming: Tables | None = Tables()  # until there is a state
        self._is_stopped = False
        self._trouble: PushUpError | None = Refusal.LOADING()
        self._silence, self._arrivals = Silence(clock, BEAT_SECONDS), 0  # arrivals on the link at the last look
        self._is_hanging = False  # the parent
        self._ahead = 0.0
        self._members: tuple[Member, ...] = ()
        self._reporting = Periodic(
            self._report,
            BEAT_SECONDS,
            clock,
            if_it_fails="reports to the parent process failed: GET /v1/nodes shows old data; restart the server",
            at_once=True,
        )

    def start(self, follower: Follower) -> None:
        self._follower = follower
        self._connect(self._link)

    async def stop(self) -> None:
        """Leave. Publishers whose outcome has not come by now are told that it is not known."""
        self._is_stopped = True
        self._leave(Refusal.STOPPING(), "this worker has stopped")
        self._link.close()

    def append(self, command: Command, on_outcome: OnOutcome) -> None:
        if self._trouble is not None:
            on_outcome(self._trouble)
        else:
            self._commands.append(command, on_outcome)

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        if ack != "stable" or not self._link.is_open:
            on_confirmation(Confirmation("accepted", nodes=1))
            return
        number = next(self._marks)
        deadline = self._clock.callLater(seconds, self._confirmed, number, Confirmation("accepted", nodes=1))
        self._confirmations[number] = on_confirmation, deadline
        self._send(frames.Confirm(number))

    def now(self) -> float:
        return max(self._follower.state.time, self._uptime() + self._ahead)

    def find_end(self, on_end: OnEnd) -> None:
        self._ends.append(on_end)
        self._send(frames.FindEnd())

    @property
    def is_current(self) -> bool:
        # Whoever is attached counts for `stable`; a worker that is not is about to end.
        return self._link.is_open

    @property
    def waiting_bytes(self) -> int:
        return self._commands.bytes

    def awaits(self, epoch: str) -> bool:
        state = self._follower.state
        if state.past_epochs.good_up_to(epoch) >= 0:
            return False
        if not self._link.is_open:
            return True  # the next parent may have begun it
        if order_of(epoch) < order_of(state.cursor.epoch) or epoch in self._unknown_epochs:
            return False
        # It may also if this one has ended, and this worker has not noticed; an answer of its shows that it has not.
        if epoch not in self._asked_epochs and len(self._asked_epochs) < UNKNOWN_EPOCHS:
            self._asked_epochs.add(epoch)
            self.find_end(partial(self._does_not_exist, epoch))
        return True

    def _does_not_exist(self, epoch: str, end: Cursor) -> None:
        self._asked_epochs.discard(epoch)
        self._unknown_epochs.append(epoch)

    def members(self) -> list[Member]:
        return list(self._members)

    def why_not_ready(self) -> PushUpError | None:
        return self._trouble

    def metrics(self) -> tuple[()]:
        return ()

    # What the parent says.

    def _received(self, body: bytes) -> None:
        if self._is_stopped:
            return
        try:
            self._take(frames.read_by_worker(body))
        except Exception:
            self._cannot_follow()

    def _cannot_follow(self) -> None:
        _log.failure("could not follow the parent process; this worker will be replaced (please report this as a bug)")
        self._link.abort("this worker could not follow the parent process")

    def _take(self, message: frames.ToWorker) -> None:
        match message:
            case frames.Next(entries, numbers):
                self._turns.do(self._apply(entries, numbers))
            case frames.Refused(number, trouble):
                self._commands.answer(number, trouble.error)
            case frames.Welcome(number):
                self._commands.next_number = number
            case frames.Part(rows):
                assert self._incoming is not None
                self._incoming.take(rows)
                self._pieces += 1
                if self._pieces % LARGE_PIECES == 0:
                    self._on_large()
            case frames.Last(changes):
                Deferred.fromCoroutine(self._restore(changes)).addErrback(self._not_restored)
            case frames.End(epoch, sequence):
                self._ends.popleft()(Cursor(epoch, sequence))
            case frames.Mark(number):
                self._send(frames.Passed(number))
            case frames.Confirmed(number, workers):
                self._confirmed(number, Confirmation("stable", nodes=workers))
            case frames.Beat(ahead, trouble, members):
                self._trouble = None if trouble is None else trouble.error
                if self._is_hanging:
                    self._is_hanging = False
                    _log.info("the parent process responds again")
                self._ahead = ahead
                self._members = members
                on_state, self._on_state = self._on_state, lambda: None
                on_state()

    def _apply(self, entries: tuple[Entry, ...], numbers: tuple[int, ...]) -> Iterator[int]:
        """Apply each entry, and answer its publisher if that waits here."""
        answer = self._commands.answer
        for entry, number in zip(entries, numbers, strict=True):
            yield work_of(entry, self._follower.state.time)
            if self._is_stopped:
                return
            try:
                outcome = self._follower.apply(entry)
            except Exception:
                self._cannot_follow()
                return
            answer(number, outcome)

    async def _restore(self, last: Changes) -> None:
        """Begin with the state that was handed over; what comes after it waits."""
        assert self._incoming is not None
        self._link.hold()
        self._incoming.take(last.rows)
        snapshot = Snapshot(last.head, self._incoming)
        self._incoming = None
        self._on_large()
        pace = Pace(self._clock)
        state = await restored(snapshot, pace)
        if self._link.is_open and not self._is_stopped:
            self._follower.start_from(state)
            self._on_large()
            self._reporting.startService()
            self._link.go_on()
        await free(snapshot.tables, pace)

    def _not_restored(self, failure: Failure) -> None:
        _log.failure("could not restore the state; this worker will be replaced (please report this as a bug)", failure)
        self._link.abort("this worker could not restore the state")

    def _send(self, message: frames.ToParent) -> None:
        self._commands.send()
        self._link.send(frames.frame(message))

    def _report(self) -> None:
        self._send(frames.Present(self._follower.member(self.node_id)))
        if self._arrivals != self._link.arrivals:
            self._arrivals = self._link.arrivals
            self._silence.end()
        silent = self._silence.look()
        if silent > SILENCE_SECONDS and not self._is_hanging:
            self._is_hanging = True
            reason = f"the parent process has not responded for {silent:.0f} s"
            _log.error(
                "{reason}; publishing is refused until it does. If it does not, restart the server", reason=reason
            )
            self._refuse(Refusal.UNREACHABLE(reason), reason)

    def _refuse(self, trouble: PushUpError, reason: str) -> None:
        """Refuse commands from now on, and answer the publishers that wait: their outcome is not known."""
        self._trouble = trouble
        self._commands.answer_all(Refusal.UNKNOWN_OUTCOME(reason))

    def _confirmed(self, number: int, confirmation: Confirmation) -> None:
        waiting = self._confirmations.pop(number, None)
        if waiting is not None:
            on_confirmation, deadline = waiting
            if deadline.active():
                deadline.cancel()
            on_confirmation(confirmation)

    def _ended(self, reason: str) -> None:
        """The link has ended: nobody knows what becomes of the commands under way."""
        if not self._is_stopped:
            self._leave(Refusal.UNREACHABLE(f"the parent process: {reason}"), reason)
            self._on_lost(reason)

    def _leave(self, trouble: PushUpError, reason: str) -> None:
        self._reporting.stopService()
        self._refuse(trouble, reason)
        for number in list(self._confirmations):
            self._confirmed(number, Confirmation("accepted", nodes=1))


_check: type[Broadcast] = HubBroadcast
