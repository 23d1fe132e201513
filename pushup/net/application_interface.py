"""The interface between the edge and the application: one open request, and what answers it."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple, Protocol, TypeAlias

from pushup.core.answer import Answer
from pushup.core.errors import PushUpError
from pushup.core.subscription import Subscription
from pushup.net.requests_and_responses import Header, Request, Response, ResponseOptions


class Cancellable(Protocol):
    """What somebody waits for who may leave. A Deferred is one."""

    def cancel(self) -> None:
        """The client has left, or lags too far behind: the connection is closed."""


class Streamed(Cancellable, Protocol):
    """What writes the stream that answers a request."""

    def drained(self) -> None:
        """The kernel has accepted everything; called after a `write` that returned False."""


Held: TypeAlias = Subscription[Any] | Cancellable
"""What an open request waits for: a message, or the authorization to wait for one; or what writes its stream."""


class Client(NamedTuple):
    """The address of a connection's other end, or of whom a trusted proxy speaks for (then without a port).

    On a Unix socket `host` is empty.
    """

    host: str
    port: int = 0

    @classmethod
    def of(cls, sock: socket.socket) -> Client:
        """The client of an accepted socket."""
        try:
            name = sock.getpeername()
        except OSError:
            return cls("gone")
        return cls(*name[:2]) if isinstance(name, tuple) else cls("")

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine. A proxy on this machine is local, whoever its clients are."""
        return not self.host or self.host.startswith("127.") or self.host == "::1"

    def __str__(self) -> str:
        if not self.host:
            return "a Unix socket"
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


NO_ROUTE = "(none)"
"""Stands for the route of a request that could not be read, or is for nothing that there is."""


class Exchange(Protocol):
    """One open request; a connection. Each is answered exactly once, by `answer`, `respond` or `stream`."""

    route: str
    """The path in the table of calls (`net.api.application`) that the request is for; the application sets it."""

    @property
    def client(self) -> Client:
        """Who sent it."""

    def answer(self, answer: Answer) -> None:
        """Answer a poll."""

    def hold(self, held: Held) -> None:
        """The request is a poll that waits. If its client leaves, `held` is abandoned (`Application.abandon`)."""

    def respond(self, response: Response) -> None:
        """Answer any other request, or a poll with an error."""

    def stream(self, streamed: Streamed, content_type: bytes, first: bytes, *, chunked: bool) -> bool:
        """Answer with status 200, these bytes and whatever will be written; returns what `write` does.

        `chunked`: all of it is in chunks already. If the client leaves, `streamed` is abandoned.
        """

    def write(self, data: bytes) -> bool:
        """Send the next bytes of a stream; returns whether the kernel has accepted everything so far.

        The rest is sent when it can be. If it exceeds `output_limit_bytes`, the connection is closed instead.
        """

    def finish(self, data: bytes) -> None:
        """Send the last bytes of a stream."""


class Application(Protocol):
    """What answers requests."""

    def admit(self, request: Request) -> int:
        """The maximum size of a request's body in bytes. Only the head of the request has arrived.

        Asked about requests that announce a body. Others go to `__call__` as soon as their head is complete.
        Raises: PushUpError when the head is enough to refuse the request; its body is then not read.
        """

    def refuse(self, error: PushUpError, request: Request | None, exchange: Exchange) -> None:
        """Answer a request with an error; `request` is its head, None if that has not arrived."""

    def headers_for(self, request: Request) -> tuple[Header, ...]:
        """Header fields of every response to this request (CORS). Asked only about requests with an Origin."""

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer a complete request, now or later."""

    def abandon(self, held: Held) -> None:
        """The client of a request that waits for this has left."""


def options_for(request: Request, application: Application) -> ResponseOptions | None:
    """How the response to a request is to be written; None is the usual way."""
    headers = application.headers_for(request) if b"origin" in request.headers else ()
    if request.keep_alive and request.method != b"HEAD" and not headers:
        return None
    return ResponseOptions(request.method == b"HEAD", not request.keep_alive, headers)
