"""A connection to Redis: its protocol (RESP2) on hiredis, Redis' own parser.

Commands are answered in their order, so many may be under way. A Redis that has gone without a word is given up, and
everything under way fails with `Lost`. What counts is progress, not the time that a command takes: a large reply may
take as long as the link needs, and so may a large request. The clock begins when a request has been taken, and anew
with each reply and each `PROGRESS_BYTES` of one; a Redis that sends or takes less than that in `timeout` is given up.

Requests leave in pieces, as the transport takes them, so that what it has not taken is known, and nowhere else.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import hiredis
from msgspec import Struct
from twisted.internet import protocol
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHandshakeListener, IPushProducer, IReactorTime, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.shared_transport import SharedTransport
from pushup.timer import Timer

Reply = Any
"""bytes, int, None, a list of these; or an exception: `hiredis.ReplyError`, or `Lost`."""

Word = str | bytes | int | float

TLS_ALERT = b"\x15\x03"
SPEAKS_TLS = "it speaks TLS: use rediss:// instead of redis://"

PROGRESS_BYTES = 4096
"""Of one reply: as much in `timeout` is progress. A modem does better; a Redis that sends a byte a second does not."""

PIECE_BYTES = 64 * 1024
"""Given to the transport at a time; when it holds more, it says so and takes no more until all of that has left."""


class Lost(Exception):
    """The connection ended, and it is not known whether Redis has done what it was asked to."""


class _UnderWay(Struct, eq=False):
    """A command without a reply yet.

    `since`: from when on its reply is waited for; `end`: where its request ends among all bytes; `taken`: whether all
    of the request has left the transport, or will with the next write.
    """

    since: float
    blocks: float
    end: int
    then: Callable[[Reply], None]
    taken: bool = True


@implementer(IPushProducer, IHandshakeListener)
class RedisConnection(protocol.Protocol):
    """One connection, from when it is made until it is lost."""

    def __init__(
        self, clock: IReactorTime, timeout: float, adopt: Callable[[Any], SharedTransport] | None = None
    ) -> None:
        """`timeout`: seconds without progress until it is given up; `adopt`: who drives its transport, if others do."""
        self._adopt = adopt
        self._adopted: SharedTransport | None = None
        self._timeout = timeout
        self._clock = clock
        self._reader = hiredis.Reader()
        self._waiting: deque[_UnderWay] = deque()
        self._received_at = 0.0
        self._partial = 0  # bytes of a reply that is not whole, since the last progress
        self.reply_grew_at = 0.0
        """When `PROGRESS_BYTES` more of a reply that was not whole yet had arrived."""
        self._paused = False  # the transport holds as much as it takes
        self._unsent: deque[memoryview] = deque()  # what it has not got yet
        self._untaken: deque[_UnderWay] = deque()  # commands whose requests have not left the transport as a whole
        self._written = self._given = 0  # bytes of all commands, and of what the transport got
        self._taken_at = 0.0
        self._deadline = Timer(clock, self._overdue)
        self._reason = ""
        self.shook_hands = False
        """Whether there was a TLS handshake."""
        self.was_refused = False
        """Whether the other side has said by TLS that it does not go on, or its certificate was not accepted."""
        self.closed_unheard = False
        """Whether the other side has closed it without a word."""
        self._heard = False
        self.lost: Deferred[None] = Deferred()
        """Fires when the connection has ended, for whatever reason."""

    def send(self, words: tuple[Word, ...], then: Callable[[Reply], None], *, blocks: float = 0.0) -> None:
        """Have a command done; `then` takes the reply. It may block in Redis for so many seconds."""
        if self.lost.called or self.transport is None:
            then(Lost("not connected"))
            return
        data = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stubs know one word only
        self._written += len(data)
        command = _UnderWay(self._clock.seconds() + blocks, blocks, self._written, then)
        self._waiting.append(command)
        deadline = command.since + self._timeout
        if deadline < self._deadline.time:
            self._deadline.not_after(deadline)  # and once it rings, for whoever is the first then
        if self._paused or len(data) > PIECE_BYTES:
            command.taken = False
            self._untaken.append(command)
            self._unsent.append(memoryview(data))
            self._give()
        else:
            self._given += len(data)
            self.transport.write(data)
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

    def _give(self) -> None:
        """Give the transport pieces until it holds as much as it takes."""
        assert self.transport is not None
        while self._unsent and not self._paused:
            first = self._unsent[0]
            piece = bytes(first[:PIECE_BYTES])
            if len(piece) < len(first):
                self._unsent[0] = first[PIECE_BYTES:]
            else:
                self._unsent.popleft()
            self._given += len(piece)
            self.transport.write(piece)
        if not self._unsent and not self._paused:
            self._left()

    def _left(self) -> None:
        """All that was given has left the transport, or what has not is little."""
        now = self._taken_at = self._clock.seconds()
        while self._untaken and self._untaken[0].end <= self._given:
            command = self._untaken.popleft()
            command.since, command.taken = now + command.blocks, True

    # What Twisted calls.

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._left()
        self._give()

    def stopProducing(self) -> None:
        pass  # `connectionLost` comes next

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.registerProducer(self, streaming=True)  # type: ignore[attr-defined]
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
            # What the kernel has taken and not sent yet looks like progress and is none: let that be little.
            with suppress(OSError, AttributeError):
                lower: Any = getattr(self.transport, "transport", self.transport)
                lower.getHandle().setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PIECE_BYTES)
        if self._adopt is not None:
            # Under TLS lies the transport that reads and writes.
            self._adopted = self._adopt(getattr(self.transport, "transport", self.transport))

    def handshakeCompleted(self) -> None:
        self.shook_hands = True

    def dataReceived(self, data: bytes) -> None:
        self._heard = True
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        self._partial += len(data)
        try:
            while waiting and (reply := reader.gets()) is not False:
                if self._partial:
                    self._partial = 0
                    self._received_at = self._clock.seconds()
                waiting.popleft().then(reply)
        except hiredis.ProtocolError as error:
            is_tls = data[:2] == TLS_ALERT and not self.shook_hands
            self.abort(SPEAKS_TLS if is_tls else f"this is not Redis: {error}")
        if self._partial >= PROGRESS_BYTES:
            self._partial = 0
            self._received_at = self.reply_grew_at = self._clock.seconds()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._deadline.stop()
        if self._adopted is not None:
            self._adopted.release()
        lost = Lost(self._reason or self._ended(reason))
        waiting, self._waiting = self._waiting, deque()
        self._unsent.clear()
        self._untaken.clear()
        self.lost.callback(None)
        for command in waiting:
            command.then(lost)

    def _ended(self, reason: Failure) -> str:
        """How the other side, or the system, has ended the connection."""
        if reason.check(ConnectionDone):
            self.closed_unheard = not self._heard
            return "Redis closed the connection"
        arguments = getattr(reason.value, "args", ())
        if arguments and isinstance(arguments[0], list):  # OpenSSL's errors: library, function and reason of each
            text = ", ".join(str(error[-1]) for error in arguments[0])
            self.was_refused = "alert" in text
            return f"TLS failed: {text}"
        self.was_refused = not isinstance(reason.value, ConnectionLost)
        return reason.getErrorMessage()

    def _overdue(self) -> None:
        """There was no progress with the first that waits; or there was, and it may wait on."""
        if not self._waiting:
            return
        first, timeout = self._waiting[0], self._timeout
        deadline = max(first.since, self._received_at, 0.0 if first.taken else self._taken_at) + timeout
        if deadline > self._clock.seconds():
            self._deadline.not_after(deadline)
        elif not first.taken:
            self.abort(f"Redis took nothing of a request for {timeout:g} s")
        elif self._partial or self.reply_grew_at > first.since:
            self.abort(f"a reply went on with less than {PROGRESS_BYTES} bytes in {timeout:g} s")
        else:
            self.abort(f"no reply within {timeout:g} s")
