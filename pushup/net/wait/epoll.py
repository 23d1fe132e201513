"""The `epoll` strategy, the default on Linux: one `select.epoll` of our own is ONE reader of the Twisted reactor.

It is drained in batches. Connections need no reactor objects, and their events bypass the reactor's dispatch.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from pushup.net.wait.demultiplexer import Demultiplexer, Reactor, Watched, make_call, read_from, write_to

BATCH = 256
"""Events taken from the epoll at a time: about 4 ms of work."""

TURN_SECONDS = 0.005
"""How long batches are handled before the reactor's other readers and its timers get their turn."""

IN_TURN_SECONDS = 0.001
"""How long calls in turn are made after each batch, or a quarter of what the batch took, if that is longer. The longer,
the later is everything else while there are many of these calls."""

BUSY_BATCH = 32
"""Events taken at a time while calls wait for their turn."""

LINGER_SECONDS = 0.005
"""How long a turn waits for its next batch when turns follow each other more closely than this, which saves a turn of
the reactor (20 us). It waits no longer than the reactor would: until a timer is due, or another reader has something.

Waits of less than a tick of the kernel (4 ms) cost more: 10 us for each message at 5,000 a second."""

OTHERS_LIMIT = 32
"""The most readers of the reactor that a turn watches besides, at 2 us each. If there are more, it watches none."""

UNWATCHED_SECONDS = 0.001
"""How long a turn waits at most if it does not watch the other readers, such as many requests to a backend."""

_BROKEN = 0x008 | 0x010  # EPOLLERR | EPOLLHUP, by number: `select` has no epoll on every system


class _SharedTransport:
    """A turn may linger for its next batch, so what passes through this transport must not wait for the turn's end."""

    def __init__(self, demultiplexer: EpollDemultiplexer, transport: Any) -> None:
        self._demultiplexer = demultiplexer
        self._transport = transport
        self.fd: int = transport.fileno()
        self._flushing = False

    def read(self) -> None:
        """Read what has arrived. If the transport has ended, leave that to the reactor, which notices it as well."""
        if self._transport.doRead():
            self.give_back()

    def give_back(self) -> None:
        """Let the reactor read it again."""
        self.release()
        self._transport.startReading()

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._demultiplexer.soon(self._flush)

    def release(self) -> None:
        self._demultiplexer.release(self)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport.connected:
            self._transport.doWrite()


class EpollDemultiplexer:
    """The `epoll` strategy."""

    _epoll: select.epoll  # open from `start` to `close`

    def __init__(
        self,
        reactor: Reactor,
        *,
        turn_seconds: float = TURN_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
        unwatched_seconds: float = UNWATCHED_SECONDS,
    ) -> None:
        self._reactor = reactor
        self._turn_seconds = turn_seconds
        self._linger_seconds = linger_seconds
        self._unwatched_seconds = unwatched_seconds
        self._soon: list[Callable[[], None]] = []
        self._in_turn: deque[Callable[[], None]] = deque()
        self._is_scheduled = False  # whether the reactor is going to make those calls
        self._turning = False
        self._last_turn = 0.0  # when it ended
        self.longest_turn = 0.0
        self._others: set[int] = set()  # what the reactor's other readers read, while a turn may wait
        self._others_are_ready = False
        self._connections: dict[int, Watched] = {}
        self._shared: dict[int, _SharedTransport] = {}

    def start(self) -> None:
        self._epoll = select.epoll()
        self._reactor.addReader(cast(IReadDescriptor, self))

    def add(self, connection: Watched) -> None:
        fd = connection.socket.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._connections[fd] = connection

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        mask = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        self._epoll.modify(connection.socket.fileno(), mask)

    def remove(self, connection: Watched) -> None:
        fd = connection.socket.fileno()
        del self._connections[fd]
        self._epoll.unregister(fd)

    def adopt(self, transport: Any) -> _SharedTransport:
        self._leave_others()  # until now it may have been one of them
        shared = _SharedTransport(self, transport)
        self._epoll.register(shared.fd, select.EPOLLIN)
        self._shared[shared.fd] = shared
        transport.stopReading()
        return shared

    def release(self, shared: _SharedTransport) -> None:
        if self._shared.get(shared.fd) is shared:
            del self._shared[shared.fd]
            with suppress(OSError):  # the kernel forgets a closed file by itself
                self._epoll.unregister(shared.fd)

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)
        if not self._turning:
            self._schedule()

    def in_turn(self, call: Callable[[], None]) -> None:
        self._in_turn.append(call)
        if not self._turning:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._reactor.callLater(0, self._make_calls)

    def _make_calls(self) -> None:
        self._is_scheduled = False
        self.doRead()

    def close(self) -> None:
        for shared in list(self._shared.values()):
            shared.give_back()
        self._reactor.removeReader(cast(IReadDescriptor, self))
        self._epoll.close()

    # What the reactor calls.

    def fileno(self) -> int:
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Handle batch after batch for `turn_seconds`. Events left over make the epoll readable again."""
        if self._epoll.closed:
            return
        poll = self._epoll.poll
        began = monotonic()
        end = began + self._turn_seconds
        longest_wait = self._watch_others() if began - self._last_turn < self._linger_seconds else 0.0
        self._turning = True
        events = poll(0, BUSY_BATCH if self._in_turn else BATCH)
        while events or self._soon or self._in_turn:
            batch_began = monotonic()
            self._handle(events)
            calls, self._soon = self._soon, []
            for call in calls:
                make_call(call)
            if self._in_turn:
                self._make_calls_in_turn(batch_began)
            if self._others_are_ready or monotonic() > end:
                break
            waits = longest_wait and not (self._soon or self._in_turn) and len(events) < BATCH
            events = poll(self._until_timer(longest_wait) if waits else 0, BUSY_BATCH if self._in_turn else BATCH)
        self._turning = False
        self._leave_others()
        self._last_turn = monotonic()
        if self._last_turn - began > self.longest_turn:
            self.longest_turn = self._last_turn - began
        if self._soon or self._in_turn:
            self._schedule()

    def _make_calls_in_turn(self, batch_began: float) -> None:
        """Some of them; what they add is at the end of the queue."""
        now = monotonic()
        end = now + max(IN_TURN_SECONDS, (now - batch_began) / 4)
        while self._in_turn:
            make_call(self._in_turn.popleft())
            if monotonic() > end:
                return

    def _until_timer(self, longest: float) -> float:
        """How long to wait: until the reactor's next timer is due, at most `longest`."""
        timeout = self._reactor.timeout()
        return longest if timeout is None or timeout > longest else timeout

    def _watch_others(self) -> float:
        """Let the reactor's other readers end this turn: a new connection, or what another thread wants it to call.

        Returns how long the turn may wait for events at a time.
        """
        readers = self._reactor.getReaders()
        if len(readers) > OTHERS_LIMIT:
            return self._unwatched_seconds
        for reader in readers:
            fd = reader.fileno()
            if fd >= 0 and fd != self.fileno():
                with suppress(OSError):  # an epoll cannot watch it
                    self._epoll.register(fd, select.EPOLLIN)
                    self._others.add(fd)
        return self._linger_seconds

    def _leave_others(self) -> None:
        for fd in self._others:
            if fd not in self._connections and fd not in self._shared:  # or it was closed, and another got its number
                with suppress(OSError):  # the kernel forgets a closed file by itself
                    self._epoll.unregister(fd)
        self._others.clear()
        self._others_are_ready = False

    def _handle(self, events: list[tuple[int, int]]) -> None:
        connections, read = self._connections, read_from
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:
                if fd in self._shared:
                    make_call(self._shared[fd].read)
                elif fd in self._others:
                    self._others_are_ready = True
                continue  # or another event of this batch closed it
            if event & select.EPOLLOUT:
                write_to(connection)
            if event & select.EPOLLIN:
                read(connection)
            elif event & _BROKEN:
                connection.lost()

    def connectionLost(self, reason: Failure) -> None:
        """Part of the reactor's interface; never happens to an epoll."""

    def logPrefix(self) -> str:
        return "epoll"


implementer(IReadDescriptor)(EpollDemultiplexer)  # not as a decorator: with one, a class is not compiled as such

_check: type[Demultiplexer] = EpollDemultiplexer
