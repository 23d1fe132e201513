"""The HTTP of the simulated clients."""

from __future__ import annotations

import json

import pytest

from tests.simulation.http import HttpClient, Message, Reader, request
from tests.simulation.network import End, Network
from tests.simulation.world import Process, World

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
BYE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Answering:
    """A server that answers each request with what the test says, or not at all."""

    def __init__(self, world: World, network: Network, name: str = "server") -> None:
        self.process = Process(world, name)
        self.reply = OK
        self.requests: list[Message] = []
        self.ends: list[End] = []
        network.listen(name, self.process, self._accept)

    def _accept(self, end: End) -> None:
        reader = Reader()
        self.ends.append(end)

        def received(data: bytes) -> None:
            for message in reader.feed(data):
                self.requests.append(message)
                end.send(self.reply)

        end.on_data = received


class Asking:
    """A client and its server, and what the client was told."""

    def __init__(self) -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.server = Answering(self.world, self.network)
        self.client = HttpClient(self.network, Process(self.world, "client"))
        self.replies: list[bytes | None] = []

    def ask(self, host: str = "server", timeout: float = 5.0, slow: float = 0.0) -> None:
        def replied(reply: Message | None) -> None:
            self.replies.append(None if reply is None else reply.body)

        self.client.ask(host, request("GET", "/"), timeout, replied, slow)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_a_request_can_be_read_again() -> None:
    """Its line, its headers and its body, of which the length is that of the bytes."""
    data = request("POST", "/v1/messages", {"channels": ["tag:é"]}, Idempotency_Key="k")
    (message,) = Reader().feed(data)
    assert message.first_line == "POST /v1/messages HTTP/1.1"
    assert message.headers["idempotency-key"] == "k"
    assert message.headers["content-length"] == str(len(message.body))
    assert message.json == json.loads(message.body) == {"channels": ["tag:é"]}
    assert message.raw == data


def test_messages_are_read_however_they_are_cut() -> None:
    """Byte by byte, and several at once."""
    data = OK + BYE + OK
    for size in (1, 7, len(data)):
        reader, messages = Reader(), list[Message]()
        for start in range(0, len(data), size):
            messages += reader.feed(data[start : start + size])
        assert [(message.status, message.body) for message in messages] == [(200, b"hi"), (200, b""), (200, b"hi")]
        assert b"".join(message.raw for message in messages) == data


def test_a_connection_is_used_again(asking: Asking) -> None:
    """As long as it is to the same host and neither side has closed it."""
    other = Answering(asking.world, asking.network, "other")
    for host in ("server", "server", "other", "server"):
        asking.ask(host)
        asking.run(1)
    assert asking.replies == [b"hi"] * 4
    assert (len(asking.server.requests), len(asking.server.ends), len(other.ends)) == (3, 2, 1)
    asking.server.reply = BYE
    asking.ask()
    asking.run(1)
    asking.ask()
    asking.run(1)
    assert len(asking.server.ends) == 3


def test_no_reply(asking: Asking) -> None:
    """The caller is told once: when the time is over, the connection breaks, or nobody is there."""
    asking.server.reply = b""
    asking.ask(timeout=5.0)
    asking.run(4.9)
    assert asking.replies == []
    assert asking.client.is_busy
    asking.run(0.2)
    assert asking.replies == [None]
    asking.ask()
    asking.run(1)
    asking.server.ends[-1].reset()
    asking.run(1)
    assert asking.replies == [None, None]
    asking.ask()
    asking.run(1)
    asking.server.ends[-1].end()
    asking.run(1)
    assert asking.replies == [None] * 3
    asking.ask("nobody")
    asking.run(1)
    assert asking.replies == [None] * 4
    assert not asking.client.is_busy


def test_a_late_reply_is_not_taken_for_the_next_one(asking: Asking) -> None:
    """After a timeout the connection is not used any more."""
    asking.network.link("server", "client").seconds = 10.0
    asking.server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"
    asking.ask(timeout=60.0)
    asking.run(60)
    asking.replies.clear()
    asking.ask(timeout=1.0)
    asking.run(2)
    asking.server.reply = OK
    asking.ask(timeout=100.0)
    asking.run(99)
    assert asking.replies == [None, b"hi"]


def test_nobody_is_told_of_what_was_dropped(asking: Asking) -> None:
    """Whatever arrives later, and however the time runs out."""
    asking.ask()
    asking.client.drop()
    asking.run(9)
    asking.ask()
    asking.run(0.0001)
    asking.client.drop()
    asking.run(9)
    assert asking.replies == []


def test_a_slow_reader(asking: Asking) -> None:
    asking.ask(slow=2.0)
    asking.run(1.9)
    assert asking.replies == []
    asking.run(0.2)
    assert asking.replies == [b"hi"]


def test_one_request_at_a_time(asking: Asking) -> None:
    """Another one is a mistake of the caller."""
    asking.ask()
    with pytest.raises(AssertionError):
        asking.ask()
