"""The engines and wait strategies of `loadtest/libman`, one process, turn by turn."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from loadtest.libman.channel import AsynchChannel, Engine, OpRead, OpWrite
from loadtest.libman.engines.emulated import EmulatedProactor
from loadtest.libman.engines.pooled import PooledProactor
from loadtest.libman.engines.reactor import Reactor
from loadtest.libman.engines.ring import Ring, missing
from loadtest.libman.engines.uring import UringProactor
from loadtest.libman.handlers import EchoServerProtocol, ReactiveAcceptor, ReactiveEcho
from loadtest.libman.pushup_server import Echo
from loadtest.libman.server import echo
from loadtest.libman.wait.strategies import STRATEGIES
from loadtest.libman.wait.strategy import READ, WRITE, Event, WaitStrategy
from loadtest.libman.wait.with_select import WithSelect
from pushup.net.wait.demultiplexer import Watched
from pushup.net.wait.reactor import ReactorDemultiplexer

if TYPE_CHECKING:
    from typing_extensions import Buffer

TURNS = 20_000
"""More than any test needs; a hang ends here."""

LONG_SECONDS = 30.0
SMALL_BYTES = 8192
"""Of a socket's buffers, so that a write of more is a part of it."""

BUFFER_BYTES = 1000
LEVEL = [name for name, strategy in STRATEGIES.items() if not strategy.edge_triggered]
EDGE = [name for name, strategy in STRATEGIES.items() if strategy.edge_triggered]


def _proactor(name: str) -> Engine:
    return UringProactor() if name == "uring" else EmulatedProactor(STRATEGIES[name]())


PROACTORS = [*STRATEGIES, *([] if missing() else ["uring"])]
SERVERS = [
    *[("reactor", wait, 0) for wait in STRATEGIES],
    *[("emulated", wait, threads) for wait in STRATEGIES for threads in (0, 3)],
    *([] if missing() else [("uring", "poll", 0), ("uring", "poll", 3)]),
]


@pytest.fixture(params=PROACTORS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = _proactor(request.param)
    yield engine
    engine.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's end and the client's, which does not block. Its buffers are small."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
    client.setblocking(False)
    yield server, client
    server.close()
    client.close()


class Recorder:
    """A handler that notes what is completed, or makes a call instead."""

    def __init__(self, engine: Engine, sock: socket.socket, on_read: Callable[[OpRead], object] | None = None) -> None:
        self.completed: list[tuple[str, int, type[OSError] | None]] = []
        self.channel = AsynchChannel(engine, self, sock)
        self._on_read = on_read
        self.on_write: Callable[[OpWrite], object] | None = None

    def read_completed(self, op: OpRead) -> None:
        if self._on_read:
            self._on_read(op)
            return
        self.completed.append(("read", op.bytes_completed, type(op.error) if op.error else None))

    def write_completed(self, op: OpWrite) -> None:
        if self.on_write:
            self.on_write(op)
            return
        self.completed.append(("write", op.bytes_completed, type(op.error) if op.error else None))


def _turn_until(turn: Callable[[float | None], None], condition: Callable[[], object]) -> None:
    for _ in range(TURNS):
        if condition():
            return
        turn(0.001)
    raise AssertionError("it did not happen")


def _has_ended(client: socket.socket) -> bool:
    """Whether the server has closed the connection; what it sent before is lost."""
    try:
        return not client.recv(65536)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def _received(client: socket.socket, into: bytearray) -> int:
    with suppress(BlockingIOError):
        into += client.recv(65536)
    return len(into)


# The echo servers, each with every engine and strategy.


@pytest.mark.parametrize(("engine", "wait", "threads"), SERVERS)
def test_every_server_returns_what_it_was_sent(engine: str, wait: str, threads: int) -> None:
    """In order, on each of several connections, also when a client sends more than fits before it reads anything."""
    data = random.Random(1).randbytes(300_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = echo(listener, engine=engine, wait=wait, threads=threads, buffer_bytes=BUFFER_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)  # those that it accepts inherit it
        clients = [socket.socket() for _ in range(3)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
            client.connect(listener.getsockname())
            client.setblocking(False)
        sent, got = [0, 0, 0], [bytearray() for _ in clients]

        def exchange() -> bool:
            for number, client in enumerate(clients):
                before = sent[number]
                with suppress(BlockingIOError):
                    sent[number] += client.send(data[before:])
                if sent[number] == before:
                    _received(client, got[number])
            return all(len(each) == len(data) for each in got)

        _turn_until(server.turn, exchange)
        assert all(each == data for each in got)
        for client in clients:
            client.shutdown(socket.SHUT_WR)
            _turn_until(server.turn, lambda client=client: _has_ended(client))  # type: ignore[misc]
            client.close()
        server.close()


# What a proactor promises.


def test_a_write_is_completed_once_and_as_a_whole(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """However often the socket takes only a part of it, the handler hears of one completion, at the end."""
    server, client = pair
    recorder = Recorder(engine, server)
    data = random.Random(2).randbytes(5_000_000)
    recorder.channel.write(bytearray(data), len(data) - 7)
    for _ in range(20):
        engine.turn(0.001)
    assert recorder.completed == []
    got = bytearray()
    _turn_until(engine.turn, lambda: _received(client, got) == len(data) - 7)
    _turn_until(engine.turn, lambda: recorder.completed)
    assert recorder.completed == [("write", len(data) - 7, None)]
    assert got == data[:-7]
    recorder.channel.close()


def test_a_read_is_completed_with_what_there_is(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """Up to the size of the buffer; what is left is for the next read. At the end of the stream it has 0 bytes."""
    server, client = pair
    recorder = Recorder(engine, server)
    buffer = bytearray(4)
    seen = b""
    client.send(b"abcdef")
    client.shutdown(socket.SHUT_WR)
    for _ in range(3):
        recorder.channel.read(buffer)
        count = len(recorder.completed)
        _turn_until(engine.turn, lambda count=count: len(recorder.completed) > count)  # type: ignore[misc]
        seen += buffer[: recorder.completed[-1][1]]
    assert recorder.completed == [("read", 4, None), ("read", 2, None), ("read", 0, None)]
    assert seen == b"abcdef"
    recorder.channel.close()


def test_nothing_is_read_before_a_read_is_started(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """What has arrived waits, the engine sleeps, and a later read gets it at once."""
    server, client = pair
    recorder = Recorder(engine, server)
    client.send(b"early")
    for _ in range(3):
        engine.turn(0.01)
    assert recorder.completed == []
    recorder.channel.read(bytearray(10))
    _turn_until(engine.turn, lambda: recorder.completed)
    assert recorder.completed == [("read", 5, None)]
    recorder.channel.close()


def test_a_reset_is_an_error_of_the_operation(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """The handler gets it in `op.error`, for a read and for a write."""
    server, client = pair
    recorder = Recorder(engine, server)
    recorder.channel.read(bytearray(10))
    engine.turn(0.001)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    _turn_until(engine.turn, lambda: recorder.completed)
    recorder.channel.write(bytearray(10), 10)
    _turn_until(engine.turn, lambda: len(recorder.completed) == 2)
    assert recorder.completed == [("read", 0, ConnectionResetError), ("write", 0, BrokenPipeError)]
    recorder.channel.close()


def test_a_channel_has_one_read_and_one_write_under_way(
    engine: Engine, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A second one is refused, and so is any after the channel is closed."""
    channel = Recorder(engine, pair[0]).channel
    channel.read(bytearray(1))
    with pytest.raises(ValueError, match="already under way"):
        channel.read(bytearray(1))
    channel.close()
    with pytest.raises(ValueError, match="closed"):
        channel.write(bytearray(1), 1)
    engine.turn(0.01)


def test_closing_gives_up_what_is_under_way(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """The handler is not called any more, and the client sees the connection end."""
    server, client = pair
    recorder = Recorder(engine, server)
    recorder.channel.read(bytearray(10))
    recorder.channel.write(bytearray(5_000_000), 5_000_000)
    engine.turn(0.001)
    recorder.channel.close()
    _turn_until(engine.turn, lambda: _has_ended(client))
    assert server.fileno() == -1
    assert recorder.completed == []


def test_a_handler_may_close_the_channel(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """In the middle of a turn in which more has happened to it."""
    server, client = pair
    recorder = Recorder(engine, server, on_read=lambda op: op.channel.close())
    recorder.channel.read(bytearray(10))
    client.send(b"x")
    _turn_until(engine.turn, lambda: server.fileno() == -1)


@pytest.mark.parametrize("name", [name for name in PROACTORS if name not in STRATEGIES])
def test_the_kernel_keeps_a_buffer_until_it_is_done(name: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """While a read is under way the buffer cannot move, not even once the channel is closed."""
    engine = _proactor(name)
    recorder = Recorder(engine, pair[0])
    buffer = bytearray(10)
    recorder.channel.read(buffer)
    engine.turn(0.0)
    recorder.channel.close()
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    _turn_until(engine.turn, lambda: pair[0].fileno() == -1)
    buffer.extend(b"more")
    engine.close()


@pytest.mark.parametrize("submissions", [] if missing() else [2])
def test_more_operations_than_the_ring_has_places_for(submissions: int) -> None:
    """They are submitted in several parts."""
    engine = UringProactor(Ring(submissions))
    pairs = [socket.socketpair() for _ in range(9)]
    recorders = [Recorder(engine, server) for server, _ in pairs]
    for recorder, (_, client) in zip(recorders, pairs, strict=True):
        recorder.channel.read(bytearray(1))
        client.send(b"x")
    _turn_until(engine.turn, lambda: all(recorder.completed for recorder in recorders))
    for recorder, (_, client) in zip(recorders, pairs, strict=True):
        recorder.channel.close()
        client.close()
    engine.close()


# The thread pool.


@pytest.fixture(params=PROACTORS)
def pooled(request: pytest.FixtureRequest) -> Iterator[PooledProactor]:
    pooled = PooledProactor(_proactor(request.param), 2)
    yield pooled
    pooled.close()


def test_handlers_run_in_the_pool_and_the_engine_does_not(
    pooled: PooledProactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A handler that is busy stops nobody else, and what it starts is carried out although the engine was waiting."""
    others = socket.socketpair()
    go_on, busy = threading.Event(), threading.Event()
    names: list[str] = []

    def blocked(op: OpRead) -> None:
        names.append(threading.current_thread().name)
        busy.set()
        assert go_on.wait(10)
        op.channel.write(op.buffer, op.bytes_completed)

    first, second = Recorder(pooled, pair[0], on_read=blocked), Recorder(pooled, others[0])

    def written(op: OpWrite) -> None:
        first.completed.append(("write", op.bytes_completed, None))
        op.channel.read(bytearray(10))  # ends the wait even if the write came before it

    first.on_write = written
    first.channel.read(bytearray(10))
    second.channel.read(bytearray(10))
    pair[1].send(b"one")
    _turn_until(pooled.turn, busy.is_set)
    others[1].send(b"two")
    _turn_until(pooled.turn, lambda: second.completed)
    assert first.completed == []
    timer = threading.Timer(0.05, go_on.set)
    began = time.monotonic()
    timer.start()
    pooled.turn(LONG_SECONDS)
    assert time.monotonic() - began < LONG_SECONDS, "what the handler started has ended the wait"
    timer.join()
    _turn_until(pooled.turn, lambda: first.completed)
    assert first.completed == [("write", 3, None)]
    assert len(names) == 1
    assert names[0].startswith("handlers")
    first.channel.close()
    second.channel.close()
    others[1].close()


def test_what_a_thread_started_is_given_up_with_its_channel(
    pooled: PooledProactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    """It was handed over, and before the engine's turn the channel was closed."""
    channel = Recorder(pooled, pair[0]).channel
    for start in (lambda: channel.read(bytearray(10)), lambda: channel.write(bytearray(10), 10)):
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    channel.close()
    pooled.turn(0.0)
    assert pair[0].fileno() == -1
    assert pair[1].recv(10) == b""


def test_an_error_in_the_pool_is_shown(
    pooled: PooledProactor, pair: tuple[socket.socket, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody asks the pool for it, so it is printed."""
    recorder = Recorder(pooled, pair[0], on_read=lambda op: 1 / 0)
    recorder.channel.read(bytearray(10))
    pair[1].send(b"x")
    errors = ""

    def shown() -> bool:
        nonlocal errors
        errors += capsys.readouterr().err
        return "ZeroDivisionError" in errors

    _turn_until(pooled.turn, shown)
    recorder.channel.close()


# Appendix II: what goes wrong with each group of wait strategies.


def _echoed(reactor: Reactor, pair: tuple[socket.socket, socket.socket], drains: bool) -> bytes:
    """What comes back of one message of three and a half buffers, sent at once."""
    server, client = pair
    ReactiveEcho(reactor, server, BUFFER_BYTES, drains=drains)
    client.send(bytes(3 * BUFFER_BYTES + BUFFER_BYTES // 2))
    got = bytearray()
    for _ in range(50):
        reactor.turn(0.005)
        _received(client, got)
    return bytes(got)


@pytest.mark.parametrize("wait", EDGE)
def test_an_edge_is_reported_once(wait: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """Appendix II: a handler that does not read to the end never hears of the rest; its connection stalls."""
    assert len(_echoed(Reactor(STRATEGIES[wait]()), pair, drains=False)) == BUFFER_BYTES


@pytest.mark.parametrize("wait", EDGE)
def test_a_handler_that_reads_to_the_end_does_not_stall(wait: str, pair: tuple[socket.socket, socket.socket]) -> None:
    assert len(_echoed(Reactor(STRATEGIES[wait]()), pair, drains=True)) == 3.5 * BUFFER_BYTES


@pytest.mark.parametrize("wait", LEVEL)
def test_a_level_is_reported_until_all_is_read(wait: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """The same handler is enough for the other strategies."""
    assert len(_echoed(Reactor(STRATEGIES[wait]()), pair, drains=False)) == 3.5 * BUFFER_BYTES


@pytest.mark.parametrize("wait", EDGE)
def test_the_proactor_hides_the_edge(wait: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """Its handler reads one buffer at a time, and gets everything."""
    engine = EmulatedProactor(STRATEGIES[wait]())
    server, client = pair
    recorder = Recorder(engine, server)
    client.send(bytes(35))
    while sum(size for _, size, _ in recorder.completed) < 35:
        recorder.channel.read(bytearray(10))
        count = len(recorder.completed)
        _turn_until(engine.turn, lambda count=count: len(recorder.completed) > count)  # type: ignore[misc]
    assert [size for _, size, _ in recorder.completed] == [10, 10, 10, 5]
    recorder.channel.close()


class _Busy:
    """A reactor's handler that has not yet read when the reactor waits again, as if a thread were to do that."""

    def __init__(self) -> None:
        self.dispatched = 0

    def ready_to_read(self) -> None:
        self.dispatched += 1

    def ready_to_write(self) -> None:
        pass


def test_an_event_of_a_handler_that_is_gone_is_dropped(pair: tuple[socket.socket, socket.socket]) -> None:
    """Another event of the same wait may have ended it. In a proactor, too."""
    wait = _Scripted()
    reactor, handler = Reactor(wait), _Busy()
    fd = pair[0].fileno()
    wait.events.append([(fd, READ), (fd, WRITE), (fd, READ)])
    reactor.watch(fd, handler, READ)
    handler.ready_to_write = lambda: reactor.watch(fd, handler, 0)  # type: ignore[method-assign]
    reactor.turn(0.0)
    assert handler.dispatched == 1
    engine = EmulatedProactor(wait)
    recorder = Recorder(engine, pair[0], on_read=lambda op: op.channel.close())
    recorder.channel.read(bytearray(1))
    pair[1].send(b"x")
    wait.events += [[(fd, READ), (fd, READ | WRITE)]]
    _turn_until(engine.turn, lambda: not wait.events)
    assert pair[0].fileno() == -1


@pytest.mark.parametrize("wait", LEVEL)
def test_a_level_is_dispatched_twice_unless_it_is_not_watched(
    wait: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Appendix II: the reactor's handler has to take its descriptor out of those that are watched."""
    reactor, handler = Reactor(STRATEGIES[wait]()), _Busy()
    server, client = pair
    reactor.watch(server.fileno(), handler, READ)
    client.send(b"x")
    _turn_until(reactor.turn, lambda: handler.dispatched)
    reactor.turn(0.0)
    assert handler.dispatched == 2
    reactor.watch(server.fileno(), handler, 0)
    reactor.turn(0.0)
    assert handler.dispatched == 2


def test_a_completion_is_dispatched_once(engine: Engine, pair: tuple[socket.socket, socket.socket]) -> None:
    """Also when more has arrived, and the handler does not start another read for a while."""
    server, client = pair
    recorder = Recorder(engine, server)
    recorder.channel.read(bytearray(2))
    client.send(b"abcd")
    _turn_until(engine.turn, lambda: recorder.completed)
    for _ in range(5):
        engine.turn(0.001)
    assert recorder.completed == [("read", 2, None)]
    recorder.channel.close()


class _Scripted:
    """A wait strategy that reports what it is told to, and notes what it is asked to watch."""

    edge_triggered = False

    def __init__(self) -> None:
        self.events: list[list[Event]] = []
        self.watched: list[tuple[int, int]] = []
        self.timeouts: list[float | None] = []

    def watch(self, fd: int, mask: int) -> None:
        self.watched.append((fd, mask))

    def wait(self, timeout: float | None) -> list[Event]:
        self.timeouts.append(timeout)
        return self.events.pop(0) if self.events else []

    def close(self) -> None:
        pass


_check: type[WaitStrategy] = _Scripted


def test_a_ready_socket_that_nobody_reads_is_not_watched(pair: tuple[socket.socket, socket.socket]) -> None:
    """Or each wait of a level-triggered strategy would end at once. With the next read it is watched again."""
    wait = _Scripted()
    engine = EmulatedProactor(wait)
    recorder = Recorder(engine, pair[0])
    fd = pair[0].fileno()
    recorder.channel.read(bytearray(1))
    pair[1].send(b"ab")
    wait.events += [[(fd, READ)], [(fd, READ)]]
    _turn_until(engine.turn, lambda: not wait.events)
    assert wait.watched == [(fd, READ), (fd, 0)]
    recorder.channel.read(bytearray(1))
    assert wait.watched[2:] == [(fd, READ)]
    recorder.channel.close()


def test_a_write_that_blocks_is_watched_until_it_is_done(pair: tuple[socket.socket, socket.socket]) -> None:
    """And not before, as most writes do not block."""
    wait = _Scripted()
    engine = EmulatedProactor(wait)
    recorder = Recorder(engine, pair[0])
    fd = pair[0].fileno()
    recorder.channel.write(bytearray(1), 1)
    engine.turn(0.0)
    assert (wait.watched, len(recorder.completed)) == ([], 1)
    recorder.channel.write(bytearray(5_000_000), 5_000_000)
    _turn_until(engine.turn, lambda: wait.watched)
    assert wait.watched == [(fd, WRITE)]
    got = bytearray()

    def all_sent() -> bool:
        wait.events.append([(fd, WRITE)])
        _received(pair[1], got)
        return len(recorder.completed) == 2

    _turn_until(engine.turn, all_sent)
    wait.events.append([(fd, WRITE)])
    _turn_until(engine.turn, lambda: not wait.events)
    assert wait.watched == [(fd, WRITE), (fd, 0)]
    recorder.channel.close()


def test_what_is_started_does_not_wait(pair: tuple[socket.socket, socket.socket]) -> None:
    """While a handler goes on writing, a turn only looks for events, so that others get theirs."""
    wait = _Scripted()
    engine = EmulatedProactor(wait)
    recorder = Recorder(engine, pair[0])
    recorder.on_write = lambda op: op.channel.write(op.buffer, 1)
    recorder.channel.write(bytearray(1), 1)
    engine.turn(7.0)
    assert wait.timeouts == [0.0]
    wait.events.append([(pair[0].fileno(), WRITE)])
    engine.turn(7.0)
    assert wait.timeouts == [0.0, 0.0]
    recorder.on_write = None
    engine.turn(7.0)
    assert wait.timeouts == [0.0, 0.0, 7.0]
    recorder.channel.close()


class _Counting(socket.socket):
    """A socket that counts its system calls."""

    calls = 0

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        self.calls += 1
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        self.calls += 1
        return super().send(data, flags)


@pytest.mark.parametrize("engine", ["reactor", "emulated"])
def test_emulation_does_the_same_work(engine: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """The paper's steps: for each message one wait, one read and one write, whoever makes them, and nothing else."""
    wait = _Scripted()
    server, client = _Counting(fileno=pair[0].detach()), pair[1]
    fd = server.fileno()
    turn = _echo_on(engine, wait, server)
    messages = 5
    for _ in range(messages):
        client.send(bytes(BUFFER_BYTES))
        wait.events.append([(fd, READ)])
        turn(1.0)
    turn(0.0)
    got = bytearray()
    _turn_until(lambda timeout: None, lambda: _received(client, got) == messages * BUFFER_BYTES)
    assert server.calls == 2 * messages
    assert wait.watched == [(fd, READ)]
    assert len(wait.timeouts) == messages + 1
    server.close()


def _echo_on(engine: str, wait: WaitStrategy, sock: socket.socket) -> Callable[[float | None], None]:
    if engine == "reactor":
        reactor = Reactor(wait)
        ReactiveEcho(reactor, sock, BUFFER_BYTES, drains=False)
        return reactor.turn
    proactor = EmulatedProactor(wait)
    EchoServerProtocol(proactor, sock, BUFFER_BYTES).start()
    return proactor.turn


def test_a_reactors_handler_waits_for_either(pair: tuple[socket.socket, socket.socket]) -> None:
    """Until what it has read is written it wants no more of it, and then it does again."""
    wait = _Scripted()
    server, client = pair
    fd = server.fileno()
    reactor = Reactor(wait)
    ReactiveEcho(reactor, server, 1_000_000, drains=False)
    data = random.Random(4).randbytes(100_000)
    client.setblocking(True)
    client.sendall(data)
    client.setblocking(False)
    got = bytearray()

    def is_back() -> bool:
        wait.events.append([(fd, wait.watched[-1][1])])
        return _received(client, got) == len(data) and wait.watched[-1] == (fd, READ)

    _turn_until(reactor.turn, is_back)
    assert got == data
    assert (fd, WRITE) in wait.watched


# The echo on PushUp's demultiplexer.


class _Noting(ReactorDemultiplexer):
    """Notes what it is asked for; the test makes the calls."""

    def __init__(self) -> None:
        self.wanted: list[tuple[bool, bool]] = []
        self.removed = 0

    def add(self, connection: Watched) -> None:
        pass

    def want(self, connection: Watched, *, reading: bool, writing: bool) -> None:
        self.wanted.append((reading, writing))

    def remove(self, connection: Watched) -> None:
        self.removed += 1


def test_the_echo_on_pushup_reads_on_when_all_is_written(pair: tuple[socket.socket, socket.socket]) -> None:
    """In the meantime it waits until the socket takes more, and nothing is lost."""
    server, client = pair
    server.setblocking(False)
    demultiplexer = _Noting()
    connection = Echo(demultiplexer, server, BUFFER_BYTES)
    data = random.Random(3).randbytes(1_000_000)
    connection.received(data)
    assert demultiplexer.wanted == [(False, True)]
    got = bytearray()
    while _received(client, got) < len(data):
        connection.writable()
    assert got == data
    connection.writable()
    assert demultiplexer.wanted == [(False, True), (True, False)]
    connection.ended()
    connection.lost()
    assert demultiplexer.removed == 1


# The strategies themselves.


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_reports_what_it_watches(name: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """Writable, readable, both; nothing once it watches nothing, and after at most the timeout."""
    wait = STRATEGIES[name]()
    server, client = pair
    fd = server.fileno()
    assert wait.wait(0.001) == []
    wait.watch(fd, WRITE)
    assert wait.wait(None) == [(fd, WRITE)]
    client.send(b"x")
    wait.watch(fd, READ)
    assert wait.wait(None) == [(fd, READ)]
    wait.watch(fd, READ | WRITE)
    seen = 0
    for found, mask in wait.wait(None):
        assert found == fd
        seen |= mask
    assert seen == READ | WRITE
    wait.watch(fd, 0)
    assert wait.wait(0.001) == []
    wait.close()


def test_select_ends_at_a_descriptor() -> None:
    """It says so, instead of writing beyond its set."""
    WithSelect().watch(1023, READ)
    with pytest.raises(ValueError, match="1024"):
        WithSelect().watch(1024, READ)


def test_a_reactor_has_no_threads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ValueError, match="threads"):
        echo(listener, engine="reactor", wait="poll", threads=1, buffer_bytes=1)


def test_the_acceptor_takes_all_that_wait() -> None:
    """On one event, edge-triggered or not."""
    wait = _Scripted()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reactor = Reactor(wait)
        ReactiveAcceptor(reactor, listener, 1, drains=False)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        wait.events.append([(listener.fileno(), READ)])
        reactor.turn(0.0)
        assert len(wait.watched) == 4
        for client in clients:
            client.close()
        wait.events.append(wait.watched[1:])
        reactor.turn(0.0)  # they see the end, and close
        assert [mask for _, mask in wait.watched[4:]] == [0, 0, 0]
