"""Simulated sockets and the demultiplexer, as the real ones above them are used."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import cast

import pytest
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from tests.simulation.network import WINDOW_BYTES, End, Network
from tests.simulation.sockets import ListeningSocket, SimulatedDemultiplexer, SimulatedSocket, SimulatedTransport
from tests.simulation.world import Process, World


class Client:
    """The other end of one connection to a server."""

    def __init__(self) -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.server = Process(self.world, "server")
        self.process = Process(self.world, "client")
        accepted, made = list[End](), list[End]()
        self.network.listen("server", self.server, accepted.append)
        self.network.connect("client", self.process, "server", made.append, lambda: None)
        self.run()
        (self.accepted,), (self.end,) = accepted, made
        self.received = b""
        self.seen: list[str] = []
        self.end.on_data = self._receive
        self.end.on_end = lambda: self.seen.append("end")
        self.end.on_lost = lambda: self.seen.append("lost")

    def _receive(self, data: bytes) -> None:
        self.received += data

    def run(self, seconds: float = 1.0) -> None:
        self.world.run(self.world.now + seconds)


class Connection:
    """What the demultiplexer watches, and what it is told."""

    read_bytes = 4

    def __init__(self, sock: SimulatedSocket) -> None:
        self.socket = cast(socket.socket, sock)
        self.calls: list[str] = []
        self.on_end: Callable[[], None] = lambda: None
        self.on_writable: Callable[[], None] = lambda: None

    def received(self, data: bytes) -> None:
        self.calls.append(data.decode())

    def ended(self) -> None:
        self.calls.append("end")
        self.on_end()

    def writable(self) -> None:
        self.calls.append("writable")
        self.on_writable()

    def lost(self) -> None:
        self.calls.append("lost")

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def sock(client: Client) -> SimulatedSocket:
    return SimulatedSocket(client.accepted, 7)


def read(sock: SimulatedSocket, most: int) -> bytes:
    buffer = memoryview(bytearray(9))
    return buffer[: sock.recv_into(buffer, most)].tobytes()


def test_reading(client: Client, sock: SimulatedSocket) -> None:
    """It would block, gives at most what is asked for, and gives nothing after the end."""
    with pytest.raises(BlockingIOError):
        read(sock, 9)
    client.end.send(b"abc")
    client.end.end()
    client.run()
    assert sock.readable
    assert [read(sock, 2), read(sock, 9), read(sock, 9)] == [b"ab", b"c", b""]


def test_writing(client: Client, sock: SimulatedSocket) -> None:
    """Until the window is full, then it would block; when the client has read, it is ready again."""
    ready = list[bool]()
    sock.ready = lambda: ready.append(sock.writable)
    client.end.read(False)
    assert sock.send(bytes(WINDOW_BYTES + 5)) == WINDOW_BYTES
    assert not sock.writable
    with pytest.raises(BlockingIOError):
        sock.send(b"x")
    client.run()
    assert ready == []
    client.end.read()
    client.run()
    assert ready == [True]
    assert len(client.received) == WINDOW_BYTES


def test_a_broken_connection(client: Client, sock: SimulatedSocket) -> None:
    """Reading and writing fail as the operating system lets them fail."""
    client.end.reset()
    client.run()
    assert sock.readable
    assert sock.writable
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
    with pytest.raises(ConnectionResetError):
        read(sock, 1)
    with pytest.raises(OSError, match="not connected"):
        sock.shutdown(1)
    with pytest.raises(BrokenPipeError):
        sock.send(b"x")


@pytest.mark.parametrize(("unread", "seen"), [(False, ["end"]), (True, ["lost"])])
def test_closing(client: Client, sock: SimulatedSocket, unread: bool, seen: list[str]) -> None:
    """The client sees an end; or a reset, if something that it had sent was not read. It sees it once."""
    if unread:
        client.end.send(b"unread")
        client.run()
    assert sock.fileno() == 7
    sock.close()
    sock.close()
    client.run()
    assert client.seen == seen
    assert sock.fileno() == -1


def test_shutting_down(client: Client, sock: SimulatedSocket) -> None:
    """The client sees the end, and may still send."""
    sock.shutdown(socket.SHUT_WR)
    client.end.send(b"more")
    client.run()
    assert client.seen == ["end"]
    assert read(sock, 9) == b"more"


def test_accepting(client: Client, sock: SimulatedSocket) -> None:
    """In order; whoever was not accepted when listening ends is reset or sees an end."""
    listening = ListeningSocket("server")
    with pytest.raises(BlockingIOError):
        listening.accept()
    listening.queue.append(sock)
    assert listening.accept()[0] is sock
    listening.queue.append(sock)
    listening.close()
    client.run()
    assert client.seen == ["end"]


def test_a_connection_is_read_in_turns(client: Client, sock: SimulatedSocket) -> None:
    """So many bytes in each, so that others get theirs; then the end."""
    demultiplexer, connection = SimulatedDemultiplexer(client.server), Connection(sock)
    demultiplexer.add(connection)
    connection.on_end = lambda: demultiplexer.want(connection, reading=False, writing=False)
    client.end.send(b"0123456789")
    client.end.end()
    before = client.world.event_count
    client.run()
    assert connection.taken() == ["0123", "4567", "89", "end"]
    assert client.world.event_count - before >= 4


def test_a_connection_is_watched_for_what_it_wants(client: Client, sock: SimulatedSocket) -> None:
    """While it does not want to read, nothing is read; being writable is told only if it is wanted."""
    demultiplexer, connection = SimulatedDemultiplexer(client.server), Connection(sock)
    demultiplexer.add(connection)
    demultiplexer.want(connection, reading=False, writing=False)
    client.end.send(b"abc")
    client.run()
    assert connection.taken() == []
    demultiplexer.want(connection, reading=False, writing=True)
    client.run()
    assert connection.taken() == ["writable"]
    demultiplexer.want(connection, reading=True, writing=False)
    client.run()
    assert connection.taken() == ["abc"]
    demultiplexer.want(connection, reading=False, writing=False)
    client.end.reset()
    client.run()
    assert connection.taken() == ["lost"]  # that is told in any case
    with pytest.raises(AssertionError):
        demultiplexer.close()
    demultiplexer.remove(connection)
    demultiplexer.close()
    client.run()
    assert connection.taken() == []


def test_deferred_calls_are_a_turn_of_their_own(client: Client) -> None:
    """All that were asked for until then, in order; what they ask for comes in another."""
    demultiplexer, seen = SimulatedDemultiplexer(client.server), list[str]()
    before = client.world.event_count

    def ask_again() -> None:
        seen.append("a")
        demultiplexer.soon(lambda: seen.append("c"))

    demultiplexer.soon(ask_again)
    demultiplexer.soon(lambda: seen.append("b"))
    assert seen == []
    client.run()
    assert seen == ["a", "b", "c"]
    assert client.world.event_count - before == 2


class Protocol:
    """The protocol above a transport, and what it is told."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def makeConnection(self, transport: object) -> None:
        self.seen.append(type(transport))

    def dataReceived(self, data: bytes) -> None:
        self.seen.append(data)

    def connectionLost(self, reason: Failure) -> None:
        self.seen.append(reason.type)


@pytest.mark.parametrize(
    ("how", "reason"), [("end", ConnectionDone), ("reset", ConnectionLost), ("abort", ConnectionAborted)]
)
def test_a_transport(client: Client, how: str, reason: type[Exception]) -> None:
    """It passes on what arrives, and once why it ended; after that nothing, either way."""
    protocol = Protocol()
    transport = SimulatedTransport(client.accepted, protocol)
    client.end.send(b"in")
    transport.write(b"out")
    client.run()
    assert client.received == b"out"
    if how == "abort":
        transport.abortConnection()
        assert protocol.seen == [SimulatedTransport, b"in"]  # it is told in the next turn
    elif how == "end":
        client.end.end()
    else:
        client.end.reset()
    client.run()
    transport.abortConnection()
    transport.write(b"never")
    client.run()
    assert protocol.seen == [SimulatedTransport, b"in", reason]
    assert client.received == b"out"
