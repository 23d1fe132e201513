"""A connection to Redis: its protocol (RESP2) on hiredis, Redis' own parser.

Commands are answered in their order, so many may be under way. Each has a deadline: a Redis that has gone without a
word is given up, and everything under way fails with `Lost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import hiredis
from twisted.internet import protocol
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from pushup.timer import Timer

Reply = Any
"""bytes, int, None, a list of these; or an exception: `hiredis.ReplyError`, or `Lost`."""

Word = str | bytes | int | float


class Adopted(Protocol):
    """A transport that is driven by others than the reactor (`pushup.net.demultiplexer`)."""

    def flush_soon(self) -> None: ...
    def release(self) -> None: ...


class Lost(Exception):
    """The connection ended, and it is not known whether Redis has done what it was asked to."""


class RedisConnection(protocol.Protocol):
    """One connection, from when it is made until it is lost."""

    def __init__(self, clock: IReactorTime, timeout: float, adopt: Callable[[Any], Adopted] | None = None) -> None:
        """`timeout`: seconds within which Redis has to reply; `adopt`: who drives its transport, if others do."""
        self._adopt = adopt
        self._adopted: Adopted | None = None
        self._timeout = timeout
        self._clock = clock
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[float, Callable[[Reply], None]]] = deque()
        self._deadline = Timer(clock, self._overdue)
        self._reason = ""
        self.lost: Deferred[None] = Deferred()
        """Fires when the connection has ended, for whatever reason."""

    def send(self, words: tuple[Word, ...], then: Callable[[Reply], None], *, blocks: float = 0.0) -> None:
        """Have a command done; `then` takes the reply. It may block in Redis for so many seconds."""
        if self.lost.called or self.transport is None:
            then(Lost("not connected"))
            return
        deadline = self._clock.seconds() + self._timeout + blocks
        self._waiting.append((deadline, then))
        if deadline < self._deadline.time:
            self._deadline.not_after(deadline)  # and once it rings, for whoever is the first then
        self.transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stubs know one word only
        if self._adopted is not None:
            self._adopted.flush_soon()

    def ask(self, *words: Word, blocks: float = 0.0) -> Deferred[Any]:
        """Have a command done. Fails with: hiredis.ReplyError, Lost."""
        reply: Deferred[Any] = Deferred()

        def then(value: Reply) -> None:
            if isinstance(value, Exception):
                reply.errback(value)
            else:
                reply.callback(value)

        self.send(words, then, blocks=blocks)
        return reply

    def abort(self, reason: str) -> None:
        """End it at once."""
        self._reason = self._reason or reason
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    # What Twisted calls.

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        if self._adopt is not None:
            # Under TLS lies the transport that reads and writes.
            self._adopted = self._adopt(getattr(self.transport, "transport", self.transport))

    def dataReceived(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while waiting and (reply := reader.gets()) is not False:
                waiting.popleft()[1](reply)
        except hiredis.ProtocolError as error:
            self.abort(f"this is not Redis: {error}")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._deadline.stop()
        if self._adopted is not None:
            self._adopted.release()
        ended = "Redis closed the connection" if reason.check(ConnectionDone) else reason.getErrorMessage()
        lost = Lost(self._reason or ended)
        waiting, self._waiting = self._waiting, deque()
        self.lost.callback(None)
        for _, then in waiting:
            then(lost)

    def _overdue(self) -> None:
        """The first that waits has waited for too long; or it has been answered, and the next has not yet."""
        if not self._waiting:
            return
        deadline = self._waiting[0][0]
        if deadline <= self._clock.seconds():
            self.abort(f"no reply within {self._timeout:g} s")
        else:
            self._deadline.not_after(deadline)
