"""A load balancer that behaves as HAProxy does in deploy/: it checks `/readyz`, and asks servers that are ready.

A GET that fails, whether it could be sent or not, goes to another server. A POST is never sent twice, because the
balancer cannot tell whether the first server carried it out.
"""

from __future__ import annotations

from tests.simulation.http import HttpClient, Message, Reader, request
from tests.simulation.network import End, Network
from tests.simulation.world import Process, World

HOST = "balancer"

CHECK_SECONDS = 1.0
"""The time between two checks of a server."""

FALL = 2
"""After so many failed checks a server gets no requests."""

ATTEMPTS = 4
"""How many servers a GET is sent to before its client is told 503."""

SERVER_SECONDS = 75.0
"""How long a server may take for a response; longer than any poll is held."""


class Balancer:
    """The process, its servers, and what it knows of them."""

    def __init__(self, world: World, network: Network, names: list[str]) -> None:
        self.world = world
        self.network = network
        self.process = Process(world, HOST)
        self.names = names
        self.random = world.random("balancer")
        self._failures = dict.fromkeys(self.names, FALL)
        self.busy = dict.fromkeys(self.names, 0)
        """The requests under way at each server."""
        network.listen(HOST, self.process, self._accept)
        for name in self.names:
            self._check(name, HttpClient(network, self.process))

    def _accept(self, end: End) -> None:
        _Session(self, end)

    @property
    def up(self) -> list[str]:
        return [name for name in self.names if self._failures[name] < FALL]

    def _check(self, name: str, client: HttpClient) -> None:
        def checked(reply: Message | None) -> None:
            ok = reply is not None and reply.status == 200
            self._failures[name] = 0 if ok else self._failures[name] + 1

        if client.is_busy:
            checked(None)
            client.drop()
        client.ask(name, request("GET", "/readyz"), 0.9, checked)
        self.process.later(CHECK_SECONDS, lambda: self._check(name, client))

    def choose(self, tried: list[str]) -> str | None:
        """A server for a request: the one with the fewest, not one that was tried if there is another."""
        names = [name for name in self.up if name not in tried] or self.up
        return min(names, key=lambda name: (self.busy[name], self.random.random())) if names else None


class _Session:
    """One client."""

    def __init__(self, balancer: Balancer, end: End) -> None:
        self._balancer = balancer
        self._end = end
        self._waiting: list[Message] = []
        self._serving = False
        self._backend = HttpClient(balancer.network, balancer.process)
        self._asked = ""
        """The server that has its request now."""
        reader = Reader()

        def received(data: bytes) -> None:
            self._waiting += reader.feed(data)
            self._serve()

        end.on_data = received
        end.on_end = end.on_lost = self._gone

    def _gone(self) -> None:
        self._end.close()
        self._backend.drop()
        self._note_reply()

    def _note_reply(self) -> None:
        """A server has answered, or is not asked any more."""
        if self._asked:
            self._balancer.busy[self._asked] -= 1
            self._asked = ""

    def _serve(self) -> None:
        if self._waiting and not self._serving:
            self._serving = True
            self._forward(self._waiting.pop(0), [])

    def _forward(self, message: Message, tried: list[str]) -> None:
        balancer = self._balancer
        name = balancer.choose(tried) if len(tried) < ATTEMPTS else None
        if name is None or not self._end.is_open:
            self._respond(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            return
        balancer.busy[name] += 1
        self._asked = name

        def replied(reply: Message | None) -> None:
            self._note_reply()
            if reply is not None:
                self._respond(reply.raw)
            elif message.first_line.startswith("GET"):
                self._forward(message, [*tried, name])
            else:
                self._respond(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

        self._backend.ask(name, message.raw, SERVER_SECONDS, replied)

    def _respond(self, data: bytes) -> None:
        self._end.send(data)
        self._serving = False
        self._serve()
