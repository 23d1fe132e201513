"""The simulated load balancer: which servers it uses, and what it sends again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.balancer import CHECK_SECONDS, FALL, HOST, SERVER_SECONDS, Balancer
from tests.simulation.http import HttpClient, Message, Reader, request
from tests.simulation.network import End, Network
from tests.simulation.world import Process, World

READY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NOT_READY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Backend:
    """A server: what it says when it is checked, and what it does with other requests."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.name = name
        self.network = network
        self.checked = READY
        self.does: Callable[[End], None] = self._answer
        self.requests: list[str] = []
        self.process = Process(world, name)
        network.listen(name, self.process, self._accept)

    def _accept(self, end: End) -> None:
        reader = Reader()

        def received(data: bytes) -> None:
            for message in reader.feed(data):
                if " /readyz " in message.first_line:
                    end.send(self.checked)
                else:
                    self.requests.append(message.first_line.split(" ")[0])
                    self.does(end)

        end.on_data = received

    def _answer(self, end: End) -> None:
        end.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.name) + self.name.encode())


class Front:
    """A balancer with three servers."""

    def __init__(self) -> None:
        self.world = World("test")
        self.network = Network(self.world)
        self.servers = [Backend(self.world, self.network, name) for name in ("n0", "n1", "n2")]
        self.balancer = Balancer(self.world, self.network, [server.name for server in self.servers])
        self.replies: list[str] = []
        self.run(2)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def ask(self, method: str = "GET") -> None:
        client = HttpClient(self.network, Process(self.world, f"client{len(self.replies)}"))

        def replied(reply: Message | None) -> None:
            self.replies.append("none" if reply is None else f"{reply.status} {reply.body.decode()}".strip())

        client.ask(HOST, request(method, "/"), 300.0, replied)

    @property
    def requests(self) -> list[str]:
        return [request for server in self.servers for request in server.requests]


@pytest.fixture
def front() -> Front:
    return Front()


def reset(end: End) -> None:
    end.reset()


def ignore(end: End) -> None:
    """Never answer."""


@pytest.mark.parametrize("how", ["not ready", "dead", "hanging"])
def test_a_server_that_fails_its_checks(front: Front, how: str) -> None:
    """It gets no requests after `FALL` of them, and again after the first one that succeeds."""
    server = front.servers[0]
    assert front.balancer.up == ["n0", "n1", "n2"]
    if how == "dead":
        server.process.die()
    elif how == "hanging":
        server.process.pause()
    else:
        server.checked = NOT_READY
    front.run(0.5)
    assert front.balancer.up == ["n0", "n1", "n2"]
    front.run((FALL + 1) * CHECK_SECONDS)
    assert front.balancer.up == ["n1", "n2"]
    for _ in range(9):
        front.ask()
        front.run(0.1)
    assert server.requests == []
    if how == "dead":
        front.servers[0] = Backend(front.world, front.network, "n0")
    server.checked = READY
    server.process.resume()
    front.run(2.5 * CHECK_SECONDS)
    assert front.balancer.up == ["n0", "n1", "n2"]


def test_a_request_goes_to_the_server_with_the_fewest(front: Front) -> None:
    """So three that are held go to three servers."""
    for server in front.servers:
        server.does = ignore
    for _ in range(3):
        front.ask()
        front.run(0.1)
    assert [len(server.requests) for server in front.servers] == [1, 1, 1]


@pytest.mark.parametrize(("bad", "reply"), [(1, "200 n"), (2, "200 n"), (3, "503")])
def test_a_get_is_sent_again(front: Front, bad: int, reply: str) -> None:
    """To a server that was not tried; the client is told 503 when there is nobody left to try."""
    for server in front.servers[:bad]:
        server.does = reset
    for _ in range(6):
        front.ask()
        front.run(0.5)
    assert len(front.replies) == 6
    assert all(found.startswith(reply) for found in front.replies)
    assert len(front.requests) > 6
    assert set(front.balancer.busy.values()) == {0}
    assert set(front.requests) == {"GET"}


@pytest.mark.parametrize("how", [reset, ignore])
def test_a_post_is_never_sent_twice(front: Front, how: Callable[[End], None]) -> None:
    """Whatever became of the first: its client is told 502."""
    for server in front.servers:
        server.does = how
    front.ask("POST")
    front.run(SERVER_SECONDS + 1)
    assert front.requests == ["POST"]
    assert front.replies == ["502"]


def test_no_server_is_ready(front: Front) -> None:
    """The client is told 503, and no server gets the request."""
    for server in front.servers:
        server.checked = NOT_READY
    front.run(4)
    front.ask()
    front.ask("POST")
    front.run(1)
    assert front.replies == ["503", "503"]
    assert front.requests == []


def test_a_client_that_leaves(front: Front) -> None:
    """The server's connection is closed at once, or it would hold a poll for nobody."""
    ended: list[str] = []

    def hold(end: End) -> None:
        end.on_lost = lambda: ended.append("lost")

    for server in front.servers:
        server.does = hold
    client = HttpClient(front.network, Process(front.world, "client"))
    client.ask(HOST, request("GET", "/"), 300.0, lambda reply: None)
    front.run(1)
    assert sum(front.balancer.busy.values()) == 1
    client.drop()
    front.run(1)
    assert ended == ["lost"]
    assert sum(front.balancer.busy.values()) == 0


def test_requests_of_one_connection_are_answered_in_order(front: Front) -> None:
    """Although they are forwarded to several servers."""
    made: list[End] = []
    front.network.connect("client", Process(front.world, "client"), HOST, made.append, lambda: None)
    front.run(1)
    received: list[bytes] = []
    made[0].on_data = received.append
    made[0].send(request("GET", "/1") + request("GET", "/2"))
    made[0].send(request("POST", "/3"))
    front.run(1)
    assert [message.status for message in Reader().feed(b"".join(received))] == [200] * 3
    assert sorted(front.requests) == ["GET", "GET", "POST"]
