"""Calls the application about what it has to be told (`core.webhooks`): claims it, calls, and removes it.

All nodes that have a `webhook_url` do this. The order decides who calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from pushup.broadcast import Broadcast
from pushup.clock import Timer
from pushup.core.channel import Message
from pushup.core.commands import Claim, Claimed, Outcome, Told
from pushup.core.cursor import message_cursor
from pushup.core.errors import PushUpError
from pushup.core.state import ReplicatedState
from pushup.core.webhooks import Webhook
from pushup.net.log_throttle import LogThrottle
from pushup.node.expiry import SPREAD_SECONDS

TOLD_SECONDS = 0.05
"""Calls that end within this time are removed together."""

ATTEMPTS = 12
"""How often the application is called about one message, within some 66 minutes."""

Result = Literal["sent", "failed", "given_up"]
"""What has become of a call. One that `failed` is tried again."""

Send = Callable[[Webhook, Message | None], Deferred[bool]]
"""Calls the application about a message, without its data if that is no longer kept. Fires with whether it took the
call; False: it wants no other attempt. Fails with a PushUpError, and then there is one."""

_log = Logger()


class WebhookCaller:
    """Those calls of one node. `look` is called every second while there are entries."""

    def __init__(
        self,
        broadcast: Broadcast,
        *,
        state: Callable[[], ReplicatedState],
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        """`state`: the present one; `random` returns a number in [0, 1)."""
        self._broadcast = broadcast
        self._state = state
        self._random = random
        self._send: Send | None = None
        self._at_most = 0
        self._busy = 0
        self._is_claiming = False
        self._is_failing = False
        self._rarely = LogThrottle(clock.seconds)
        self._told: list[str] = []
        self._clock = clock
        self._claim_timer = Timer(clock, self._claim)
        self._told_timer = Timer(clock, self._remove)
        self.counts: dict[Result, int] = dict.fromkeys(get_args(Result), 0)

    def use(self, send: Send, at_most: int) -> None:
        """Call the application in this way, at most so many times at once."""
        self._send, self._at_most = send, at_most

    @property
    def is_on(self) -> bool:
        """Whether this node calls the application."""
        return self._send is not None

    def stop(self) -> None:
        """Call no more. Another node repeats the calls that run."""
        self._send = None
        self._claim_timer.stop()
        self._told_timer.stop()
        self._remove()

    def look(self) -> None:
        """Claim what is ready, a moment later."""
        if self._told:
            self._told_timer.not_after(self._clock.seconds() + TOLD_SECONDS)
        if self._can_claim() and self._state().webhooks.ready(1):
            self._claim_timer.not_after(self._clock.seconds() + SPREAD_SECONDS * self._random())

    def _can_claim(self) -> bool:
        return self._send is not None and not self._is_claiming and self._busy < self._at_most

    def _claim(self) -> None:
        ids = self._state().webhooks.ready(self._at_most - self._busy) if self._can_claim() else ()
        if ids:
            self._is_claiming = True
            self._broadcast.append(Claim(tuple(ids)), self._claimed)

    def _claimed(self, outcome: Outcome) -> None:
        self._is_claiming = False
        state = self._state()
        for id_ in outcome.ids if isinstance(outcome, Claimed) else ():
            row = state.webhooks.row(id_)
            if row is not None and self._send is not None:
                here = state.past_epochs.translate(message_cursor(id_), state.cursor.epoch)
                message = state.cache.get(here.sequence) if here.epoch == state.cursor.epoch else None
                self._busy += 1
                self._send(row, message).addBoth(partial(self._called, row)).addErrback(_unexpected)

    def _called(self, row: Webhook, result: bool | Failure) -> None:
        self._busy -= 1
        if result is True:
            outcome: Result = "sent"
            if self._is_failing:
                self._is_failing = False
                _log.info("webhook_url takes calls again")
        else:
            outcome = "given_up" if result is False or row.attempts >= ATTEMPTS else "failed"
            self._log_failure(row, outcome, result)
        self.counts[outcome] += 1
        if outcome != "failed":
            self._told.append(row.id)
        self.look()

    def _log_failure(self, row: Webhook, outcome: Result, result: bool | Failure) -> None:
        """Log the first failure of several, once a minute at most, and every call that is given up."""
        reason = "it answered 410 (Gone)"
        if isinstance(result, Failure):
            error = result.value
            reason = (error.operator_detail or error.detail) if isinstance(error, PushUpError) else repr(error)
        if outcome == "given_up":
            text = "webhook_url did not take the call {id}, and there is no other attempt: {reason}"
            _log.warn(text, id=row.id, reason=reason)
        elif not self._is_failing and self._rarely.passes("failing"):
            self._is_failing = True
            _log.warn("webhook_url does not take calls, which will be repeated: {reason}", reason=reason)

    def _remove(self) -> None:
        ids, self._told = tuple(self._told), []
        if ids:
            self._broadcast.append(Told(ids), partial(self._removed, ids))

    def _removed(self, ids: tuple[str, ...], outcome: Outcome) -> None:
        if isinstance(outcome, PushUpError):
            self._told += ids  # at the next look


def _unexpected(failure: Failure) -> None:
    _log.failure("a webhook failed unexpectedly (please report this as a bug)", failure)
