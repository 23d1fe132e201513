"""A stream of frames between two processes of one machine. Each frame is its length, in 4 bytes, and then its bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

LENGTH_BYTES = 4

UNSENT_LIMIT_BYTES = 64 * 1024 * 1024
"""How many bytes may wait for the other process. One that is so far behind is given up."""


class Silence:
    """How long the process at the other end has been silent.

    It grows only while this process runs. After a pause of both (SIGSTOP, a frozen container, a suspended machine) the
    other one has had no time to speak either.
    """

    def __init__(self, clock: IReactorTime, look_seconds: float) -> None:
        self._clock = clock
        self._most = 2 * look_seconds
        self._looked_at = clock.seconds()
        self._seconds = 0.0

    def end(self) -> None:
        """The other process has spoken."""
        self._seconds = 0.0

    def look(self) -> float:
        """The seconds until now, up to `look_seconds` too many. To be called that often."""
        now = self._clock.seconds()
        self._seconds += min(now - self._looked_at, self._most)
        self._looked_at = now
        return self._seconds


def framed(body: bytes) -> bytes:
    """The frame with this body."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Link(Protocol):
    """One end of the stream, from when it is made until it ends."""

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        """`received` takes the body of each frame; `ended` is called once, with the reason."""
        self._received = received
        self._ended = ended
        self._arrived = bytearray()
        self.arrivals = 0
        """How many pieces have arrived, each with any number of frames."""
        self._is_held = False
        self._is_passing_on = False
        self._unsent: deque[bytes] = deque()  # frames that wait while the transport's buffer is full
        self.unsent_bytes = 0
        self.is_full = False
        """Whether the transport takes nothing at the moment, so that frames wait here."""
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever the transport takes frames again."""
        self.on_flush: Callable[[], None] = lambda: None
        """Called before the transport sends what was written in a batch of events: more can be added."""
        self._reason = ""
        self._is_closing = False
        self.is_open = False
        """Whether frames can be sent and are passed on."""
        self.was_aborted = False
        """Whether this process has ended it."""

    def send(self, frame: bytes) -> None:
        """Send a frame (`framed`). If the other process is too far behind, the link ends instead."""
        if not self.is_open:
            return
        if not self.is_full:
            self._transport.write(frame)
            return
        self._unsent.append(frame)
        self.unsent_bytes += len(frame)
        if self.unsent_bytes > UNSENT_LIMIT_BYTES:
            self.abort(f"it is more than {UNSENT_LIMIT_BYTES >> 20} MiB behind")

    def flush_soon(self) -> None:
        """Have `on_flush` called at the end of this batch of events, or when the kernel takes bytes again."""
        if self.is_open:
            self._transport.flush_soon()

    def hold(self) -> None:
        """Keep what arrives, until `go_on`. Little is kept: the other process waits."""
        if not self._is_held:
            self._is_held = True
            self._transport.pauseProducing()

    def go_on(self) -> None:
        """Pass on what was kept, and what arrives."""
        if self._is_held and self.is_open:
            self._is_held = False
            self._transport.resumeProducing()
            self._pass_on()

    def abort(self, reason: str) -> None:
        """End the link now; what was not sent is lost, and nothing that has arrived is passed on any more."""
        if self.is_open:
            self.is_open = False
            self._reason = reason
            self.was_aborted = True
            self._unsent.clear()
            self._transport.abortConnection()

    def guarded(self, call: Callable[..., None], *given: Any) -> None:
        """Call this. An error in it ends the link: not all was done that the other process relies on."""
        try:
            call(*given)
        except Exception:
            self.abort("an error of this process, see the log")
            raise

    def close(self) -> None:
        """End the link once everything is sent."""
        if self.is_open:
            self._is_closing = True
            if not self._unsent:
                self._transport.loseConnection()

    # What the transport calls.

    @property
    def _transport(self) -> Any:
        return cast(Any, self.transport)

    def connectionMade(self) -> None:
        self.is_open = True

    def dataReceived(self, data: bytes) -> None:
        self._arrived += data
        self.arrivals += 1
        self._pass_on()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_open = False
        self._unsent.clear()
        self._ended(self._reason or reason.getErrorMessage())

    def pauseProducing(self) -> None:
        self.is_full = True

    def resumeProducing(self) -> None:
        self.is_full = False
        while self._unsent and not self.is_full:
            frame = self._unsent.popleft()
            self.unsent_bytes -= len(frame)
            self._transport.write(frame)
        if not self.is_full:
            self.on_room()
            if self._is_closing:
                self.close()

    def _pass_on(self) -> None:
        """Pass on all complete frames, until it is held. What takes them may hold the link, and let it go on."""
        if self._is_passing_on:
            return
        self._is_passing_on = True
        arrived, place = self._arrived, 0
        try:
            while not self._is_held and self.is_open:
                begin = place + LENGTH_BYTES
                end = begin + int.from_bytes(arrived[place:begin], "big")
                if len(arrived) < end:
                    return
                place = end
                self.guarded(self._received, bytes(memoryview(arrived)[begin:end]))
        finally:
            self._is_passing_on = False
            del arrived[:place]
