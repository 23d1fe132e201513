"""Two ends of a `Link` joined in memory, and a clock with turns: no process, no socket, no time."""

from __future__ import annotations

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from pushup.transport.framed_link import Link

BUFFER_BYTES = 64 * 1024
"""A transport that has more than this to send is full."""

ENOUGH = 10_000
"""Turns after which there should be quiet."""


class TurnClock(Clock):
    """A clock whose turns are like a reactor's: what a turn schedules for now comes in the next one."""

    def turn(self) -> None:
        """Make the calls that are due now."""
        for call in [call for call in self.calls if call.getTime() <= self.seconds()]:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)

    @property
    def is_due(self) -> bool:
        return bool(self.calls) and self.calls[0].getTime() <= self.seconds()


class PipeEnd:
    """One end of a connection; it behaves as `pushup.workers.socket_transport` does."""

    def __init__(self, clock: Clock, buffer_bytes: int) -> None:
        self.unsent = b""
        self.is_reading = True
        self.is_lost = False
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._is_paused = False
        self._is_closing = False
        self._is_flushing = False

    def connect(self, link: Link, peer: PipeEnd) -> None:
        self.link, self.peer = link, peer
        link.makeConnection(self)  # type: ignore[no-untyped-call]

    def write(self, data: bytes) -> None:
        if self.is_lost:
            return
        self.unsent += data
        self.flush_soon()
        if len(self.unsent) > self._buffer_bytes:
            self._is_paused = True
            self.link.pauseProducing()

    def flush_soon(self) -> None:
        """`carry` lets the link add to what it sends."""
        self._is_flushing = True

    def pauseProducing(self) -> None:
        self.is_reading = False

    def resumeProducing(self) -> None:
        assert not self.is_lost
        self.is_reading = True

    def loseConnection(self) -> None:
        """Once everything is sent that was written."""
        self._is_closing = True
        self.is_reading = False
        self._clock.callLater(0, self._sent)

    def abortConnection(self) -> None:
        self.unsent = b""
        self.is_reading = False
        self._clock.callLater(0, self._end, ConnectionAborted(), ConnectionLost())

    def carry(self, size: int = BUFFER_BYTES) -> int:
        """Let up to this many bytes arrive at the other end, if that reads. Returns their number."""
        if self.is_lost or not self.peer.is_reading:
            return 0
        if self._is_flushing:
            self._is_flushing = False
            self.link.on_flush()
        data, self.unsent = self.unsent[:size], self.unsent[size:]
        if data:
            self.peer.link.dataReceived(data)
            self._sent()
        return len(data)

    def die(self) -> None:
        """Let the process at this end die: what it had not sent is lost."""
        self._end(ConnectionLost(), ConnectionDone())

    def _sent(self) -> None:
        if self.unsent or self.is_lost:
            return
        if self._is_closing:
            self._end(ConnectionDone(), ConnectionDone())
        elif self._is_paused:
            self._is_paused = False
            self.link.resumeProducing()

    def _end(self, here: Exception, there: Exception) -> None:
        for end, error in ((self, here), (self.peer, there)):
            if not end.is_lost:
                end.is_lost = True
                end.unsent = b""
                end.link.connectionLost(Failure(error))  # type: ignore[no-untyped-call]


def join(one: Link, other: Link, clock: Clock, *, buffer_bytes: int = BUFFER_BYTES) -> tuple[PipeEnd, PipeEnd]:
    """Connect two links, and return the transport of each."""
    ends = PipeEnd(clock, buffer_bytes), PipeEnd(clock, buffer_bytes)
    for end, peer, link in ((ends[0], ends[1], one), (ends[1], ends[0], other)):
        end.peer, end.link = peer, link
    for end, peer, link in ((ends[0], ends[1], one), (ends[1], ends[0], other)):
        end.connect(link, peer)
    return ends
