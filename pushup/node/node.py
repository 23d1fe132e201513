"""A node: where the replicated state, the held polls, the clock and the broadcast meet, and nowhere else.

submit  -> broadcast.append -> (every node) apply -> outcome to the publisher; then woken polls are answered in slices
poll    -> polls.subscribe  -> answered now, or held until there is something for it or its deadline
expire  <- one reactor timer, at the next deadline; what is due in the shared state: `expiry`
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from pushup.broadcast import Broadcast, HoldsState, Member, OnConfirmation, OnOutcome
from pushup.clock import Timer
from pushup.core.answer import Answer
from pushup.core.commands import Ack, Command, Entry, Outcome, Published
from pushup.core.cursor import Cursor
from pushup.core.errors import PushUpError, Refusal, revoked
from pushup.core.grant import Grant
from pushup.core.held_on_grants import HeldOnGrants
from pushup.core.held_polls import SLICE, HeldPolls
from pushup.core.limits import HoldLimits, Limits
from pushup.core.poll import Poll
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import free
from pushup.core.subscription import Holder, Subscription
from pushup.metrics import Metrics
from pushup.node.drain import Draining, DrainLimits
from pushup.node.expiry import Expiry
from pushup.node.order_end import OrderEnd
from pushup.node.presence import Presence, PresenceLimits
from pushup.node.publishers import EvictionLog
from pushup.node.readers import Readers
from pushup.node.tracing import Tracer
from pushup.node.webhook_caller import WebhookCaller

DEADLINE_STEP_SECONDS = 1 / 64
"""Deadlines are rounded to a multiple of this, so that many subscriptions share a place in the tree."""

H = TypeVar("H", bound=Holder)


class Node(HoldsState, Generic[H]):
    """One replica of the state, the polls held here, and the broadcast that both follow.

    What waits (held polls, the drain) is on `clock`, which is monotonic. What is compared with the times of messages
    (expiry, time ranges) is on `Broadcast.now`. Only their differences are used together.

    `soon` calls its argument later, in this turn of the reactor or the next; `random` returns a number in [0, 1).
    """

    def __init__(
        self,
        *,
        limits: Limits,
        hold_limits: HoldLimits,
        broadcast: Broadcast,
        clock: IReactorTime,
        soon: Callable[[Callable[[], None]], None],
        random: Callable[[], float],
        metrics: Metrics,
        drain_limits: DrainLimits = DrainLimits(),  # noqa: B008  # frozen
        presence_limits: PresenceLimits = PresenceLimits(),  # noqa: B008  # frozen
        name: str = "",
        version: str = "",
        logs_evictions: bool = True,
    ) -> None:
        self.state = ReplicatedState(limits)
        """For others to read; `apply` and `start_from` change it."""
        metrics.dropped = self.state.cache.drops.counts
        self.polls: HeldPolls[H] = HeldPolls(self.state, hold_limits)
        """For others to read; `poll` adds a poll and `abandon` removes it."""
        self._broadcast = broadcast
        self._clock = clock
        self._hold_jitter = hold_limits.hold_jitter
        self._random = random
        self.metrics = metrics
        self.soon = soon
        """Calls its argument in the next turn of the reactor."""
        self._delivering = False
        self._order_end = OrderEnd(broadcast, self.polls, self._deliver_soon)
        self._deadline_timer = Timer(clock, self._answer_due)
        self._tracer = Tracer(state=lambda: self.state, members=self.members, now=broadcast.now, name=name)
        self.trace, self.find_end, self.later = self._tracer.trace, broadcast.find_end, clock.callLater
        self.readers = Readers(broadcast, state=lambda: self.state, soon=soon, seconds=clock.seconds)
        self.webhook_caller = WebhookCaller(broadcast, state=lambda: self.state, clock=clock, random=random)
        evictions = EvictionLog(lambda: self.state, clock.seconds, is_on=logs_evictions)
        looks = [part.look for part in (self._tracer, evictions, self.readers, self.webhook_caller)]
        self._expiry = Expiry(broadcast, state=lambda: self.state, clock=clock, soon=soon, on_look=looks)
        self.draining = Draining(
            clock, drain_limits.drain_seconds,
            held=lambda: self.polls.count, answer=lambda count: self._answer(self.polls.end_all(count)),
        )  # fmt: skip
        self._name, self._version = name, version
        self.settings: dict[str, str] | None = None  # digests, for the other nodes
        self.addresses: tuple[str, ...] = ()
        """The addresses it listens on; empty until it does."""
        self.presence = Presence(
            broadcast, presence_limits, state=lambda: self.state, members=self.members, clock=clock, random=random
        )
        self.held_on_grants = HeldOnGrants(soon, self.presence.begins, self.presence.ends)
        """The polls and streams on tokens, tickets and keys, which add and discard themselves."""

    def start(self) -> None:
        """Follow the broadcast. Raises: what `Broadcast.start` does."""
        self._broadcast.start(self)
        self._expiry.start()

    async def stop(self) -> None:
        """Stop the timers, and then the broadcast: commands it has accepted are finished."""
        self._deadline_timer.stop()
        self._expiry.stop()
        self.webhook_caller.stop()
        self.presence.stop()
        await self._broadcast.stop()

    # What the HTTP interface calls.

    @property
    def here(self) -> Cursor:
        """Where "from here on" begins. Raises: Unavailable."""
        if not self.state.cursor.epoch:
            raise Refusal.LOADING()
        if not self._broadcast.is_current:
            raise Refusal.OUTDATED()
        return self.state.cursor

    @property
    def is_draining(self) -> bool:
        """Whether this node sends its clients away."""
        return self.draining.drain is not None

    def why_not_ready(self) -> PushUpError | None:
        """Why load balancers should send no new clients here; None if they may."""
        if self.draining.sends_away:
            return Refusal.DRAINING()
        return self._broadcast.why_not_ready()

    def answer_balancer(self, host: str) -> PushUpError | None:
        """What `why_not_ready` says, for a load balancer at this address; a stop waits until it has noticed."""
        self.draining.asked(host)
        return self.why_not_ready()

    def submit(self, command: Command, on_outcome: OnOutcome) -> None:
        """Have every node carry out a command; `on_outcome` gets its outcome before any poll is answered with it."""
        self._broadcast.append(command, partial(self._decided, on_outcome))

    def _decided(self, on_outcome: OnOutcome, outcome: Outcome) -> None:
        if type(outcome) is Published:
            self.metrics.messages += outcome.count
            self._tracer.answered(outcome)
        elif isinstance(outcome, PushUpError) and outcome.kind:  # or it is an outcome of the state
            self.metrics.refused_publications[outcome.kind] += 1
        on_outcome(outcome)

    def members(self) -> list[Member]:
        """All nodes of the cluster that are alive."""
        return self._broadcast.members() or [self.member("1")]

    def confirm(self, ack: Ack, cursor: Cursor, seconds: float, on_confirmation: OnConfirmation) -> None:
        """Find out within this many seconds which acknowledgement the message at `cursor` has reached."""
        self._broadcast.confirm(ack, cursor, seconds, on_confirmation)

    def poll(self, poll: Poll, holder: H, at_most: float = math.inf) -> Answer | Subscription[H]:
        """Answer a poll now, or hold it: then `holder.answer` is called, unless the subscription is abandoned.

        It is held for its timeout, but not longer than `at_most` (seconds), nor past the end of its time range.
        Raises: UnknownChannel; Unavailable before this node has a state, while it does not know the cursor's epoch, or
        for a poll that asks what there is now, while it may lack something.
        """
        now = self._clock.seconds()
        epoch, cursor = self.state.cursor.epoch, poll.cursor
        if not epoch:
            raise Refusal.LOADING()
        deadline = self._deadline(poll, now, at_most)
        if (deadline <= now or not isinstance(cursor, Cursor)) and not self._broadcast.is_current:
            raise Refusal.OUTDATED()
        if isinstance(cursor, Cursor) and cursor.epoch != epoch and self._broadcast.awaits(cursor.epoch):
            # Answering from the epoch before would repeat what this client has seen.
            raise Refusal.UNKNOWN_EPOCH()
        result = self.polls.subscribe(poll, holder, now, deadline)
        if isinstance(result, Subscription):
            if result.deadline < self._deadline_timer.time:
                self._deadline_timer.not_after(result.deadline)
            if self.polls.has_ahead and result.seen > self.state.cursor.sequence:
                self._order_end.find()
        else:
            self.metrics.delivered(result, 1, self._broadcast.now(), was_held=False)
        return result

    def _deadline(self, poll: Poll, now: float, at_most: float) -> float:
        """Until when to hold this poll, on the monotonic clock, in whole steps."""
        deadline = (now + self._hold_seconds(poll)) // DEADLINE_STEP_SECONDS * DEADLINE_STEP_SECONDS
        if poll.selection.end < math.inf:
            at_most = min(at_most, poll.selection.end - self._broadcast.now())
        if now + at_most >= deadline:
            return deadline
        # Up, because a poll that ended a moment too early would come back at once.
        return math.ceil((now + at_most) / DEADLINE_STEP_SECONDS) * DEADLINE_STEP_SECONDS if at_most > 0 else now

    def _hold_seconds(self, poll: Poll) -> float:
        """How long to hold this poll if there is nothing for it."""
        if self.draining.drain is not None:
            return self.draining.drain.hold_seconds(poll.timeout, self._random())
        return poll.timeout * (1 - self._hold_jitter * self._random())

    def abandon(self, subscription: Subscription[Any]) -> None:
        """Forget a held poll whose client is gone."""
        self.polls.abandon(subscription)

    # What the broadcast follows (`pushup.broadcast.Follower`).

    def apply(self, entry: Entry) -> Outcome:
        """Apply the next entry, whichever node it came from, and wake the polls it concerns."""
        state = self.state
        outcome = state.apply(entry)
        if self._expiry.is_asleep:
            self._expiry.wake()
        self.polls.wake(state.touched)
        if state.touched.revoked is not None:
            self.held_on_grants.end(state.touched.revoked, self._why_revoked)
        if state.touched.asked or state.touched.answered:
            self.presence.applied(state.touched)
        self._deliver_soon()
        return outcome

    def start_from(self, state: ReplicatedState) -> None:
        """Continue from another state. Held polls stay; those for which it has something new are answered."""
        if self.state.message_count or len(self.state.channels):
            free(self.state, self.soon)
        self._tracer.moved(self.state, state)
        self.state, self.outgoing = state, None  # a backup of the other state ends
        self.polls.use(state)
        self.held_on_grants.end_all(self._why_revoked)
        self.presence.start_from()
        if self._expiry.is_asleep:
            self._expiry.wake()
        self._deliver_soon()

    def _why_revoked(self, grant: Grant) -> PushUpError | None:
        return revoked() if self.state.is_revoked(grant) else None

    def member(self, id: str) -> Member:  # noqa: A002
        """What the other nodes are told about this one."""
        return Member(
            id, self._name, self.addresses, str(self.cursor), self.polls.count, self._version, self.settings,
            self.draining.sends_away, self.presence.answered,
        )  # fmt: skip

    # Stopping.

    def drain(self, seconds: float) -> Deferred[None]:
        """Answer all held polls, spread evenly over `seconds`, and hold new ones briefly. Fires at the end.

        If none is held, it takes only until load balancers have noticed, and `seconds` at most.
        """
        return self.draining.begin(seconds)

    # Answers.

    def _deliver_soon(self) -> None:
        if not self._delivering and self.polls.has_deliveries:
            self._delivering = True
            self.soon(self._deliver)

    def _deliver(self) -> None:
        """Answer one slice of the polls that entries have woken; other connections get their turn before the next."""
        self._delivering = False
        self._answer(self.polls.deliver(SLICE))
        self._deliver_soon()

    def _answer_due(self) -> None:
        """Answer one slice of the polls whose deadline has come."""
        self._answer(self.polls.expire(self._clock.seconds(), SLICE))
        self._deadline_timer.not_after(self.polls.next_deadline)

    def _answer(self, answers: list[tuple[H, Answer]]) -> None:
        """Give the answers to their holders. Equal answers come one after the other, and are counted together."""
        metrics, now = self.metrics, self._broadcast.now
        last: Answer | None = None
        count = 0
        for holder, answer in answers:
            holder.answer(answer)
            if answer is not last:
                if last is not None:
                    metrics.delivered(last, count, now(), was_held=True)
                last, count = answer, 0
            count += 1
        if last is not None:
            metrics.delivered(last, count, now(), was_held=True)
