"""A node: where the message queue, the clock and the broadcast meet, and nowhere else.

publish   -> broadcast.append -> (every node) apply -> outcome to the publisher, deliveries in slices
poll      -> queue.subscribe -> answered now, or held until there is something or its deadline
expire    <- one reactor timer, at the queue's next deadline
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from pushup import __version__
from pushup.broadcast import Broadcast, Then
from pushup.broadcast.members import Member
from pushup.core.answer import Answer
from pushup.core.channel import Channel
from pushup.core.commands import Ack, Command, Confirmation, Entry, Expire, Outcome
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, Unavailable
from pushup.core.message_queue import MessageQueue
from pushup.core.poll import Poll
from pushup.core.snapshot import Snapshot
from pushup.core.subscription import Subscription
from pushup.metrics import Metrics
from pushup.timer import Timer

SLICE = 256
"""Answers given in one turn of the reactor: about 4 ms, so that others get theirs in between."""

DEADLINE_STEP_SECONDS = 1 / 64
"""Deadlines are rounded down to it, so that many subscriptions share a place in the tree."""

HOLD_JITTER = 0.15
"""A hold ends early by a random part up to this, so that clients do not come back in step (docs/http.md)."""

EXPIRY_SECONDS = 1.0
"""How often it is looked whether shared state is due to go, if no entry comes by; that late it may be."""

DRAIN_STEP_SECONDS = 0.1
"""How often some of the held polls are answered while the node drains."""

DRAIN_HOLD_SECONDS = 1.0
"""A draining node holds a new poll for this long at most and half of it at least, at random. If it were answered at
once, its client would come back at once, hundreds of times a second: balancers prefer the node with few connections."""

_log = Logger()


class Holder(Protocol):
    """What holds a poll open."""

    def answer(self, answer: Answer) -> None: ...


H = TypeVar("H", bound=Holder)


class DrainLimits(Struct, frozen=True, kw_only=True):
    """How a node stops."""

    drain_seconds: float = 5.0
    """Over so long held polls are answered, so that their clients do not reach the other nodes all at once."""


class Node(Generic[H]):
    """One queue that follows one broadcast by one clock.

    `soon` calls what it is given later, in this turn of the reactor or the next, but not now; `random` returns a
    number in [0, 1).
    """

    def __init__(
        self,
        *,
        queue: MessageQueue[H],
        broadcast: Broadcast,
        clock: IReactorTime,
        soon: Callable[[Callable[[], None]], None],
        random: Callable[[], float],
        metrics: Metrics,
        name: str = "",
    ) -> None:
        self._queue = queue
        self._broadcast = broadcast
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._soon = soon
        self._delivering = False
        self._deadline_timer = Timer(clock, self._answer_due)
        self._expiring = False
        self._expiry = LoopingCall(self._let_time_pass)
        self._expiry.clock = clock
        self._expiry.start(EXPIRY_SECONDS, now=False).addErrback(
            lambda failure: _log.failure("letting time pass failed", failure)
        )
        self._drain_end: float | None = None
        """When a draining node has answered everybody, seconds since the epoch."""
        self._starting = False
        self._name = name
        self.addresses: tuple[str, ...] = ()
        """Where it listens, once it does."""
        broadcast.follow(self)

    @property
    def queue(self) -> MessageQueue[H]:
        """To look at."""
        return self._queue

    @property
    def cursor(self) -> Cursor:
        """Where "from here on" begins. Raises: Unavailable."""
        if not self._queue.cursor.epoch:
            raise Unavailable("this node has not read the log yet", retry_after=1)
        return self._queue.cursor

    def channel(self, name: str) -> Channel:
        """Raises: UnknownChannel."""
        return self._queue.channel(name)

    def name_of(self, channel: str) -> str:
        """The channel's name, by its name or id; what does not live goes by what it was called."""
        return self._queue.name_of(channel)

    def channels(self, after: int, most: int) -> list[Channel]:
        """The first living channels with an id after this one."""
        return self._queue.channels(after, most)

    def why_not_ready(self) -> Unavailable | None:
        """Why no new clients should be sent here, if so."""
        if self._drain_end is not None:
            return Unavailable("this node is draining", retry_after=1)
        return self._broadcast.why_not_ready()

    def publish(self, command: Command, then: Then) -> None:
        """Have a command done on every node; `then` takes what came of it, before it is delivered."""
        self._broadcast.append(command, then)

    def apply(self, entry: Entry) -> Outcome:
        """The next entry, from this node or another: delivery exists once."""
        outcome = self._queue.apply(entry)
        self._metrics.applied(entry.command, outcome)
        self._deliver_soon()
        return outcome

    async def start_from(self, snapshot: Snapshot) -> None:
        """Go on from another state: who is held is answered from the old one, and comes again with that cursor."""
        self._starting = True
        while self._queue.held:
            self._answer(self._queue.end_all(SLICE))
            next_turn: Deferred[None] = Deferred()
            self._soon(lambda turn=next_turn: turn.callback(None))  # type: ignore[misc]
            await next_turn
        self._queue.start_from(snapshot)
        self._starting = False

    def member(self, id: str) -> Member:  # noqa: A002
        """What this node shows of itself."""
        return Member(id, self._name, self.addresses, str(self._queue.cursor), self._queue.held, __version__)

    def members(self) -> list[Member]:
        """All nodes that live."""
        return self._broadcast.members() or [self.member("1")]

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, then: Callable[[Confirmation], None]) -> None:
        """See within so many seconds how sure the publisher of this message can be."""
        self._broadcast.confirm(ack, cursor, seconds, then)

    def poll(self, poll: Poll, holder: H, until: float = math.inf) -> Answer | Subscription[H]:
        """Answer a poll now, or hold it: then `holder.answer` is called, unless the subscription is abandoned.

        It is held for its timeout, and until `until` (seconds since the epoch) at most.
        Raises: UnknownChannel; Unavailable while nothing is known, or the cursor's epoch is not.
        """
        now = self._clock.seconds()
        epoch, cursor = self._queue.cursor.epoch, poll.cursor
        if not epoch:
            raise Unavailable("this node has not read the log yet", retry_after=1)
        if isinstance(cursor, Cursor) and cursor.epoch != epoch and self._broadcast.awaits(cursor.epoch):
            # Answering from the epoch before would repeat what this client has seen.
            raise Unavailable("this node has not come to the epoch of this cursor yet", retry_after=1)
        deadline = min((now + self._hold_seconds(poll, now)) // DEADLINE_STEP_SECONDS * DEADLINE_STEP_SECONDS, until)
        result = self._queue.subscribe(poll, holder, now, deadline)
        if isinstance(result, Subscription):
            if result.deadline < self._deadline_timer.time:
                self._deadline_timer.not_after(result.deadline)
        else:
            self._metrics.delivered(result, 1, now)
        return result

    def _hold_seconds(self, poll: Poll, now: float) -> float:
        """How long this poll is held if there is nothing for it."""
        if self._starting:
            return 0.0
        if self._drain_end is not None:
            hold = DRAIN_HOLD_SECONDS * (1 - self._random() / 2)
            return max(0.0, min(poll.timeout, hold, self._drain_end - now))
        return poll.timeout * (1 - HOLD_JITTER * self._random())

    def abandon(self, subscription: Subscription[Any]) -> None:
        """The client of a held poll is gone."""
        self._queue.abandon(subscription)

    def drain(self, seconds: float) -> Deferred[None]:
        """Answer all held polls, spread evenly over some time, and hold new ones briefly; fires at its end."""
        self._drain_end = self._clock.seconds() + seconds
        done: Deferred[None] = Deferred()
        self._drain_step(self._queue.held, self._drain_end, done)
        return done

    def stop(self) -> None:
        """Let no timer run on."""
        self._deadline_timer.stop()
        self._expiry.stop()

    def _drain_step(self, waiting: int, end: float, done: Deferred[None]) -> None:
        """Answer the part of the held polls whose turn it is, a slice at most.

        `waiting`: those that were held when the drain began and are still. New ones are held briefly, so those have
        the latest deadlines; and at the end everybody is answered.
        """
        held, left = self._queue.held, max(0.0, end - self._clock.seconds())
        if not held and not left:
            done.callback(None)
            return
        waiting = min(waiting, held) if left else held
        steps = max(1, math.ceil(waiting / SLICE), min(waiting, math.ceil(left / DRAIN_STEP_SECONDS)))
        share = math.ceil(waiting / steps)
        self._answer(self._queue.end_all(share))
        self._clock.callLater(left / steps, self._drain_step, waiting - share, end, done)

    def _deliver_soon(self) -> None:
        if not self._delivering and self._queue.has_deliveries:
            self._delivering = True
            self._soon(self._deliver)

    def _deliver(self) -> None:
        """One slice of what entries have woken; then the others get their turn."""
        self._delivering = False
        self._answer(self._queue.deliver(SLICE))
        self._deliver_soon()

    def _answer_due(self) -> None:
        """One slice of the polls whose deadline has come."""
        self._answer(self._queue.expire(self._clock.seconds(), SLICE))
        self._deadline_timer.not_after(self._queue.next_deadline)

    def _answer(self, answers: list[tuple[H, Answer]]) -> None:
        """Give the answers to their holders; equal ones stand together and are counted together."""
        metrics, now = self._metrics, self._clock.seconds
        last: Answer | None = None
        count = 0
        for holder, answer in answers:
            holder.answer(answer)
            if answer is not last:
                if last is not None:
                    metrics.delivered(last, count, now())
                last, count = answer, 0
            count += 1
        if last is not None:
            metrics.delivered(last, count, now())

    def _let_time_pass(self) -> None:
        """Let shared state go that is due; that takes an entry, as everything shared does."""
        due = self._queue.next_expiry
        if due is not None and due <= self._clock.seconds() and not self._expiring:
            self._expiring = True
            self._broadcast.append(Expire(), self._time_passed)

    def _time_passed(self, outcome: Outcome) -> None:
        self._expiring = False
        due = self._queue.next_expiry
        if not isinstance(outcome, PushUpError) and due is not None and due <= self._queue.time:
            self._soon(self._let_time_pass)  # there is more than one entry lets go
