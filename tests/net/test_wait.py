"""The wait strategies are interchangeable; `tests/server` runs servers with each."""

from __future__ import annotations

import select
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pytest
from twisted.internet.interfaces import IDelayedCall, IReadDescriptor, IReadWriteDescriptor
from twisted.internet.task import Clock

from pushup.net.wait import STRATEGIES
from pushup.net.wait.demultiplexer import READ_LIMIT_BYTES, Demultiplexer, Reactor, Watched
from pushup.net.wait.epoll import IN_TURN_SECONDS, OTHERS_LIMIT, EpollDemultiplexer
from pushup.testing.in_memory import InMemoryReactor
from pushup.transport import SharedTransport


class FakeReactor(InMemoryReactor):
    """Calls every reader and writer once per `turn`."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.next_timer: float | None = 0.0

    def timeout(self) -> float | None:
        return self.next_timer

    def callLater(self, delay: float, call: Callable[[], None], /) -> IDelayedCall:
        return self.clock.callLater(delay, call)

    def turn(self) -> None:
        for reader in list(self.readers):
            if reader in self.readers:
                reader.doRead()
        for writer in list(self.writers):
            if writer in self.writers:
                writer.doWrite()
        self.clock.advance(0)


class RecordingConnection:
    """Records what the demultiplexer reports about one end of a socket pair."""

    def __init__(self, demultiplexer: Demultiplexer) -> None:
        self.socket, self.peer = socket.socketpair()
        self.socket.setblocking(False)
        self.read_bytes = 4
        self.reported: list[bytes | str] = []
        self._demultiplexer = demultiplexer

    def received(self, data: bytes) -> None:
        self.reported.append(data)
        if data == b"fail":
            raise ZeroDivisionError("what nobody expected")

    def ended(self) -> None:
        self.reported.append("ended")
        self.lost()

    def writable(self) -> None:
        self.reported.append("writable")

    def lost(self) -> None:
        if self.socket.fileno() >= 0:
            self.reported.append("lost")
            self._demultiplexer.remove(self)
            self.socket.close()


_check: type[Watched] = RecordingConnection


class Parts:
    """A started demultiplexer and its connections."""

    def __init__(self, make: Callable[[Reactor], Demultiplexer]) -> None:
        self.reactor = FakeReactor()
        self.demultiplexer = make(self.reactor)
        self.demultiplexer.start()
        self._connections: list[RecordingConnection] = []

    def connect(self) -> RecordingConnection:
        connection = RecordingConnection(self.demultiplexer)
        self.demultiplexer.add(connection)
        self._connections.append(connection)
        return connection

    def read_all(self) -> float:
        """As the reactor does when something is ready; how long it took, in seconds."""
        began = time.monotonic()
        self._epoll.doRead()
        return time.monotonic() - began

    def is_ready(self) -> bool:
        """Whether an epoll would wake the reactor."""
        return bool(select.select([self._epoll.fileno()], [], [], 0)[0])

    @property
    def _epoll(self) -> IReadDescriptor:
        """What the reactor reads."""
        return cast(IReadDescriptor, self.demultiplexer)

    def close(self) -> None:
        for connection in self._connections:
            connection.lost()
            connection.peer.close()
        self.demultiplexer.close()
        assert self.reactor.readers == []
        assert self.reactor.writers == []


@pytest.fixture(params=sorted(STRATEGIES))
def parts(request: pytest.FixtureRequest) -> Iterator[Parts]:
    parts = Parts(STRATEGIES[request.param])
    yield parts
    parts.close()


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_nothing_is_registered_before_the_start(strategy: str) -> None:
    reactor = FakeReactor()
    demultiplexer = STRATEGIES[strategy](reactor)
    assert reactor.readers == []
    demultiplexer.start()
    demultiplexer.close()
    assert reactor.readers == []


def test_reading(parts: Parts) -> None:
    """A connection gets what arrives, at most `read_bytes` at a time, and its end is reported."""
    connection, other = parts.connect(), parts.connect()
    connection.peer.send(b"abcdef")
    for _ in range(3):
        parts.reactor.turn()
    connection.peer.close()
    parts.reactor.turn()
    assert connection.reported == [b"abcd", b"ef", "ended", "lost"]
    assert other.reported == []


def test_reading_allocates_no_more_than_has_arrived(parts: Parts) -> None:
    """Otherwise the heap grows: messages that stay are put into the gap that each read leaves."""
    connection = parts.connect()
    connection.read_bytes = READ_LIMIT_BYTES
    connection.peer.send(b"abc")
    tracemalloc.start()
    try:
        parts.reactor.turn()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert connection.reported == [b"abc"]
    assert peak < READ_LIMIT_BYTES / 4


def test_writing_is_reported_while_it_is_wanted(parts: Parts) -> None:
    """Reading is not reported unless it is wanted."""
    connection = parts.connect()
    connection.peer.send(b"abc")
    parts.demultiplexer.want(connection, reading=False, writing=True)
    parts.reactor.turn()
    assert set(connection.reported) == {"writable"}
    parts.demultiplexer.want(connection, reading=True, writing=False)
    connection.reported.clear()
    parts.reactor.turn()
    assert connection.reported == [b"abc"]


def test_an_error_ends_one_connection(parts: Parts, logged_failures: list[str]) -> None:
    failing, other = parts.connect(), parts.connect()
    failing.peer.send(b"fail")
    other.peer.send(b"abc")
    parts.reactor.turn()
    assert failing.reported == [b"fail", "lost"]
    assert other.reported == [b"abc"]
    assert len(logged_failures) == 1
    assert "error while reading a connection" in logged_failures[0]
    logged_failures.clear()


def test_deferred_calls_are_made_later(parts: Parts) -> None:
    """Deferred calls are made in order, never at once; calls that they add are made after them."""
    calls: list[str] = []

    def first() -> None:
        calls.append("first")
        parts.demultiplexer.soon(lambda: calls.append("third"))

    parts.demultiplexer.soon(first)
    parts.demultiplexer.soon(lambda: calls.append("second"))
    assert calls == []
    parts.reactor.turn()
    parts.reactor.turn()
    assert calls == ["first", "second", "third"]


@pytest.mark.skipif("epoll" not in STRATEGIES, reason="the other strategy leaves the order to the reactor")
def test_what_arrives_does_not_wait_for_all_calls_in_turn() -> None:
    """Many requests wait for their turn behind another one; what arrives meanwhile is read after a few of them."""
    parts = Parts(partial(EpollDemultiplexer, turn_seconds=10.0, linger_seconds=0.0))
    connection = parts.connect()
    made: list[int] = []
    read_after: list[int] = []

    def call(number: int) -> None:
        time.sleep(IN_TURN_SECONDS / 4)
        made.append(number)
        if number == 0:
            connection.peer.send(b"abc")
            parts.demultiplexer.in_turn(partial(call, 50))
        if connection.reported and not read_after:
            read_after.append(len(made))

    for number in range(50):
        parts.demultiplexer.in_turn(partial(call, number))
    parts.demultiplexer.soon(lambda: made.append(-1))
    parts.reactor.turn()
    parts.close()
    assert made == [-1, *range(51)], "in their order; one that is added is the last"
    assert read_after[0] < 10


@pytest.mark.skipif("epoll" not in STRATEGIES, reason="the other strategy has no turns of its own")
def test_calls_that_go_on_are_made_once_in_each_turn() -> None:
    """Also while connections are read; or each turn would be longer than the one before."""
    parts = Parts(partial(EpollDemultiplexer, turn_seconds=0.0))
    calls = 0

    def go_on() -> None:
        nonlocal calls
        calls += 1
        parts.demultiplexer.soon(go_on)

    def turn() -> None:
        """As the reactor's: what is scheduled now is called in the next one."""
        for call in parts.reactor.clock.getDelayedCalls():
            function = call.func  # type: ignore[attr-defined]
            call.cancel()
            function()
        parts.demultiplexer.doRead()  # type: ignore[attr-defined]

    go_on()
    for _ in range(10):
        before = calls
        turn()
        assert calls <= before + 2  # as a timer, and as a reader
        assert len(parts.reactor.clock.getDelayedCalls()) == 1
    parts.reactor.clock.getDelayedCalls()[0].cancel()
    parts.close()


class OtherReader:
    """What the reactor reads besides; `taken`: what was read from it."""

    def __init__(self, reactor: FakeReactor) -> None:
        self.socket, self._peer = socket.socketpair()
        self._peer.send(b"something")
        self._reactor = reactor
        self.taken = b""
        reactor.addReader(cast(IReadDescriptor, self))

    def doRead(self) -> None:
        self.taken += self.socket.recv(100)

    def stopReading(self) -> None:
        self._reactor.removeReader(cast(IReadDescriptor, self))

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.stopReading()
        self.socket.close()
        self._peer.close()


@pytest.fixture
def waiting() -> Iterator[Parts]:
    """Turns of an epoll that take 3 s, if nothing ends them, or half a second beside many readers."""
    if "epoll" not in STRATEGIES:
        pytest.skip("the other strategy has no turns of its own")
    parts = Parts(partial(EpollDemultiplexer, turn_seconds=3.0, linger_seconds=3.0, unwatched_seconds=0.5))
    parts.read_all()  # the first turn does not wait
    yield parts
    parts.close()


def test_a_turn_waits_until_a_timer_is_due(waiting: Parts) -> None:
    waiting.reactor.next_timer = 0.02
    waiting.connect().peer.send(b"abc")
    assert 0.02 <= waiting.read_all() < 2


def test_a_turn_waits_until_another_reader_has_something(waiting: Parts) -> None:
    """It is left to the reactor, and does not wake this epoll between turns. Later turns wait again."""
    waiting.reactor.next_timer = None
    other = OtherReader(waiting.reactor)
    connection = waiting.connect()
    connection.peer.send(b"abc")
    assert waiting.read_all() < 2
    assert connection.reported == [b"abc"]
    assert not waiting.is_ready()
    assert other.socket.recv(100) == b"something"
    waiting.reactor.next_timer = 0.02
    connection.peer.send(b"abc")
    assert waiting.read_all() >= 0.02
    other.close()


def test_a_turn_waits_briefly_beside_many_readers(waiting: Parts) -> None:
    """They are not watched, for that would take longer than a turn of the reactor."""
    waiting.reactor.next_timer = None
    waiting.connect().peer.send(b"abc")
    others = [OtherReader(waiting.reactor) for _ in range(OTHERS_LIMIT - 1)]  # the epoll is one, too
    assert waiting.read_all() < 0.5, "it is watched"
    others.append(OtherReader(waiting.reactor))
    waiting.connect().peer.send(b"abc")
    assert 0.5 <= waiting.read_all() < 2
    for other in others:
        other.close()


def test_a_turn_in_which_another_reader_is_closed(waiting: Parts) -> None:
    """A connection that gets the number of its file is watched after the turn as well."""
    other = OtherReader(waiting.reactor)
    number = other.fileno()
    opened: list[RecordingConnection] = []

    def close_and_connect() -> None:
        other.close()
        while not opened or opened[-1].socket.fileno() < number:
            opened.append(waiting.connect())

    waiting.demultiplexer.soon(close_and_connect)
    waiting.read_all()
    (connection,) = [connection for connection in opened if connection.socket.fileno() == number]
    connection.peer.send(b"abc")
    assert waiting.is_ready()
    waiting.read_all()
    assert connection.reported == [b"abc"]


def test_a_turn_in_which_a_transport_is_adopted(waiting: Parts) -> None:
    """From then on it is read in the same turns as the connections."""
    other = OtherReader(waiting.reactor)
    adopted: list[SharedTransport] = []
    waiting.demultiplexer.soon(lambda: adopted.append(waiting.demultiplexer.adopt(cast(IReadWriteDescriptor, other))))
    waiting.read_all()
    waiting.read_all()
    assert other.taken == b"something"
    adopted[0].release()
    other.close()


@pytest.mark.skipif("epoll" not in STRATEGIES, reason="with the other strategy the reactor logs it")
def test_the_longest_turn(waiting: Parts) -> None:
    """Of all turns since somebody asked."""
    waiting.reactor.next_timer = 0.0
    for seconds in (0.001, 0.03, 0.001):
        waiting.demultiplexer.soon(partial(time.sleep, seconds))
        waiting.read_all()
    assert 0.03 <= waiting.demultiplexer.longest_turn < 2
    waiting.demultiplexer.longest_turn = 0.0
    waiting.demultiplexer.soon(partial(time.sleep, 0.001))
    waiting.read_all()
    assert 0 < waiting.demultiplexer.longest_turn < 0.03


def test_a_deferred_call_that_fails(logged_failures: list[str]) -> None:
    parts = Parts(EpollDemultiplexer)
    calls: list[str] = []
    parts.demultiplexer.soon(lambda: 1 // 0)  # type: ignore[arg-type]
    parts.demultiplexer.soon(lambda: calls.append("next"))
    parts.reactor.turn()
    parts.close()
    assert calls == ["next"]
    assert "deferred call failed" in logged_failures[0]
    logged_failures.clear()
