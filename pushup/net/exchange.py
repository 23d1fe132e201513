"""One request that is open, as the application sees it."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.subscription import Subscription
from pushup.net.responses import Response

Held = Subscription[Any] | Deferred[Any]
"""What an open request waits for: a message, or leave to wait for one."""


class Holder(Protocol):
    """Takes the answer to a poll."""

    def answer(self, answer: Answer) -> None: ...


class Exchange(Protocol):
    """One request that is open; a connection. Each is answered once, by `answer` or `respond`."""

    def answer(self, answer: Answer) -> None:
        """It was a poll, and this is its answer."""

    def hold(self, held: Held) -> None:
        """It is a poll that waits. When its client goes meanwhile, `held` is abandoned."""

    def respond(self, response: Response) -> None:
        """Anything else."""
