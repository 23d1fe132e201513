"""One request that is open, as the application sees it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.core.subscription import Subscription
from pushup.net.http1 import Request
from pushup.net.responses import Response

Held = Subscription[Any] | Deferred[Any]
"""What an open request waits for: a message, or leave to wait for one."""


class Client(NamedTuple):
    """Where a connection comes from; on a Unix socket `host` is empty."""

    host: str
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it comes from this machine. A proxy on this machine does, too, whoever it speaks for."""
        return not self.host or self.host.startswith("127.") or self.host == "::1"

    def __str__(self) -> str:
        if not self.host:
            return "a Unix socket"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Exchange(Protocol):
    """One request that is open; a connection. Each is answered once, by `answer` or `respond`."""

    @property
    def client(self) -> Client:
        """Who has sent it."""

    def answer(self, answer: Answer) -> None:
        """It was a poll, and this is its answer."""

    def hold(self, held: Held) -> None:
        """It is a poll that waits. When its client goes meanwhile, `held` is abandoned."""

    def respond(self, response: Response) -> None:
        """Anything else."""


class Application(Protocol):
    """What answers requests."""

    def admit(self, request: Request) -> int:
        """How many bytes the body of this request may have, of which only the head has come.

        Raises: PushUpError when the head is enough to refuse it; then the body is not read.
        """

    def refuse(self, error: PushUpError, request: Request, exchange: Exchange) -> None:
        """Answer a request with an error, of which only the head has come."""

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """See to it that a whole request is answered, now or later, once."""

    def abandon(self, held: Held) -> None:
        """The client of an open request is gone, which was held for this."""
