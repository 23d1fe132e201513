"""A connection to Redis: its protocol (RESP2) on hiredis, Redis' own parser.

Commands are pipelined: Redis replies in order. If Redis stops responding, the connection is closed and every
outstanding command fails with `Lost`. What counts is progress, not the time that a command takes: a large reply or
request may take as long as the link needs. The timeout starts when a request has been sent, and again with each reply
and each `PROGRESS_BYTES` of one.

Requests are written in pieces, as fast as the transport takes them, so that unsent bytes are counted here and not
hidden in the transport's buffer.
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

from pushup.broadcast.redis.redis_errors import ErrorReply, Lost
from pushup.clock import Timer
from pushup.transport import SharedTransport

Reply = Any
"""bytes, int, None, a list of these; or an exception: `ErrorReply`, or `Lost`."""

Word = str | bytes | int | float

TLS_ALERT = b"\x15\x03"
USES_TLS = "this port uses TLS: use rediss:// instead of redis://"

PROGRESS_BYTES = 4096
"""This much of one reply within `timeout` counts as progress. A modem is faster; a peer that sends a byte a second is
not."""

PIECE_BYTES = 64 * 1024
"""Written to the transport at a time. It pauses when it holds more, and resumes when its buffer is empty."""

REPLY_SHOWN = 100
"""Characters of a reply that are shown in an error."""


class _Outstanding(Struct, eq=False):
    """A command without a reply yet.

    `since`: when its timeout starts; `end`: the offset of its request's end among all bytes written; `taken`: whether
    the whole request has left the transport, or will with the next write.
    """

    since: float
    blocks: float
    end: int
    on_reply: Callable[[Reply], None]
    taken: bool = True


@implementer(IPushProducer, IHandshakeListener)
class RedisConnection(protocol.Protocol):
    """One connection, from when it is made until it ends."""

    def __init__(
        self, clock: IReactorTime, timeout: float, adopt: Callable[[Any], SharedTransport] | None = None
    ) -> None:
        """`timeout`: seconds without progress; `adopt`: hands the transport to another driver than the reactor."""
        self._adopt = adopt
        self._adopted: SharedTransport | None = None
        self._timeout = timeout
        self._clock = clock
        self._reader = hiredis.Reader(replyError=ErrorReply)
        self._waiting: deque[_Outstanding] = deque()
        self._received_at = 0.0
        self._partial = 0  # bytes of an incomplete reply since the last progress
        self.reply_grew_at = 0.0
        """When another `PROGRESS_BYTES` of an incomplete reply had arrived."""
        self._paused = False  # the transport's buffer is full
        self._unsent: deque[memoryview] = deque()  # not yet written to the transport
        self._untaken: deque[_Outstanding] = deque()  # commands whose requests have not fully left
        self._written = self._given = 0  # bytes of all commands, and of those the transport got
        self._taken_at = 0.0
        self._deadline = Timer(clock, self._overdue)
        self._reason = ""
        self.server = "Redis"
        """Where it leads, for messages to the operator."""
        self.is_from_sentinel = False
        """Whether a Sentinel has said where."""
        self.shook_hands = False
        """Whether a TLS handshake was completed."""
        self.was_refused = False
        """Whether the peer sent a TLS alert, or its certificate was not accepted."""
        self.closed_unheard = False
        """Whether the peer closed it without having sent anything."""
        self._heard = False
        self.has_ended = False

    def send(self, words: tuple[Word, ...], on_reply: Callable[[Reply], None], *, blocks: float = 0.0) -> None:
        """Send a command; `on_reply` is called with the reply. `blocks`: seconds it may block in Redis."""
        if self.has_ended or self.transport is None:
            on_reply(Lost("not connected"))
            return
        data = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stubs allow one word only
        self._written += len(data)
        command = _Outstanding(self._clock.seconds() + blocks, blocks, self._written, on_reply)
        self._waiting.append(command)
        self._deadline.not_after(command.since + self._timeout)  # when it rings, it is set for the first command
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
        """Send a command. Fails with: ErrorReply, Lost."""
        reply: Deferred[Any] = Deferred()

        def on_reply(value: Reply) -> None:
            if isinstance(value, Exception):
                reply.errback(value)
            else:
                reply.callback(value)

        self.send(words, on_reply, blocks=blocks)
        return reply

    def abort(self, reason: str) -> None:
        """Close it at once. `reason`: what outstanding commands fail with."""
        self._reason = self._reason or reason
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def _give(self) -> None:
        """Write pieces until the transport's buffer is full."""
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
        if not self._paused:
            self._left()

    def _left(self) -> None:
        """The transport has sent all or nearly all that was written to it: start the timeouts of these commands."""
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
        lower: Any = getattr(self.transport, "transport", self.transport)  # with TLS, the one that reads and writes
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
            # Bytes in the kernel's send buffer look like progress, so keep that buffer small.
            with suppress(OSError, AttributeError):
                lower.getHandle().setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PIECE_BYTES)
        if self._adopt is not None:
            self._adopted = self._adopt(lower)

    def handshakeCompleted(self) -> None:
        self.shook_hands = True

    def dataReceived(self, data: bytes) -> None:
        self._heard = True
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        self._partial += len(data)
        try:
            while (reply := reader.gets()) is not False:
                if not waiting:  # from now on each command would get the reply of the one before
                    self.abort(f"a reply to no command: {str(reply)[:REPLY_SHOWN]}")
                    return
                if self._partial:
                    self._partial = 0
                    self._received_at = self._clock.seconds()
                waiting.popleft().on_reply(reply)
        except hiredis.ProtocolError as error:
            is_tls = data[:2] == TLS_ALERT and not self.shook_hands
            self.abort(USES_TLS if is_tls else f"this is not Redis: {error}")
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
        self.has_ended = True
        for command in waiting:
            command.on_reply(lost)

    def _ended(self, reason: Failure) -> str:
        """How the peer, or the system, ended the connection."""
        if reason.check(ConnectionDone):
            self.closed_unheard = not self._heard
            return "Redis closed the connection"
        match getattr(reason.value, "args", ()):
            case [list() as errors]:  # of OpenSSL: (library, function, reason)
                text = ", ".join(str(why) for _, _, why in errors)
                self.was_refused = "alert" in text
                return f"TLS failed: {text}"
        self.was_refused = not isinstance(reason.value, ConnectionLost)
        return reason.getErrorMessage()

    def _overdue(self) -> None:
        """Close the connection if there was no progress with the first command; else set the timer again."""
        if not self._waiting:
            return
        first, timeout = self._waiting[0], self._timeout
        deadline = max(first.since, self._received_at, 0.0 if first.taken else self._taken_at) + timeout
        if deadline > self._clock.seconds():
            self._deadline.not_after(deadline)
        elif not first.taken:
            self.abort(f"Redis accepted no data for {timeout:g} s")
        elif self._partial or self.reply_grew_at > first.since:
            self.abort(f"a reply stalled: less than {PROGRESS_BYTES} bytes in {timeout:g} s")
        else:
            self.abort(f"no reply within {timeout:g} s")
