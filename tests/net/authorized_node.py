"""A node whose application has to authorize polls, and its clients, without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from pushup.backends.authorization import Authorization
from pushup.backends.decision import Decision
from pushup.backends.tickets import Tickets
from pushup.broadcast.memory import MemoryBroadcast
from pushup.core.limits import Limits
from pushup.net.api.access import Access
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.poll_access import PollAccess
from pushup.node.node import Node
from tests.net.in_memory_node import AroundMemory, InMemoryNode, RecordingExchange
from tests.net.in_memory_server import Client, InMemoryServer

SECONDS = 60
"""How long the tickets of these tests are good."""


class Application:
    """Decides when the test says so, or at once if `at_once` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], dict[bytes, bytes]]] = []
        self.decisions: list[Deferred[Decision]] = []
        self.cancelled = 0
        self.subject = ""
        """Whom it names when it allows a poll."""
        self.at_once: Callable[[tuple[str, ...]], float | Exception] | None = None

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[Decision]:
        self.asked.append((channels, dict(headers)))
        if self.at_once is not None:
            decision = self.at_once(channels)
            return (
                fail(decision) if isinstance(decision, Exception) else succeed(Decision(True, decision, self.subject))
            )
        self.decisions.append(Deferred(self._cancel))
        return self.decisions[-1]

    def stop(self) -> None:
        raise AssertionError("not stopped here")

    def renew_connections(self) -> None:
        raise AssertionError("not reloaded here")

    def _cancel(self, decision: object) -> None:
        self.cancelled += 1

    def allow(self, number: int = -1) -> None:
        self.decisions[number].callback(Decision(True, float(SECONDS), self.subject))

    def refuse(self, error: Exception) -> None:
        self.decisions[-1].errback(error)


class AuthorizedNode(InMemoryNode):
    """A node whose application has to authorize polls."""

    def __init__(
        self,
        *,
        strict_channels: bool = False,
        limit_bytes: int = 10**6,
        wall_ahead: float = 0.0,
        limits: Limits | None = None,
        broadcast: type[MemoryBroadcast | AroundMemory] = MemoryBroadcast,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.wall_ahead = wall_ahead
        """By this the clock of tickets is ahead of the one that polls wait on."""
        self.application = Application()
        self.tickets = Tickets(b"a key")
        super().__init__(
            limits=limits or Limits(strict_channels=strict_channels, retention_seconds=600.0),
            rules=ChannelRules("application"),
            poll_access=self._access,
            broadcast=broadcast,
        )

    def _access(self, node: Node[Any], access: Access, clock: Clock) -> PollAccess:
        self._monotonic = clock
        self.authorization = Authorization(
            self.application,
            tickets=self.tickets,
            ticket_seconds=120.0,
            limit_seconds=86_400.0,
            wall=self.wall,
            random=lambda: 0.0,
        )
        return PollAccess(node, access, self.wall, self.authorization, self.limit_bytes)

    def wall(self) -> float:
        return self._monotonic.seconds() + self.wall_ahead

    def begin_poll(self, query: str, ticket: str = "", **headers: str) -> RecordingExchange:
        if ticket:
            headers["pushup_ticket"] = ticket
        return self.begin("GET", f"/v1/poll?{query}", **headers)

    def ticket(self, *channels: str, subject: str = "", issued_at: int | None = None) -> str:
        """A ticket that is valid from now on; by default it was issued a second ago."""
        now = int(self.wall())
        issued_at = now - 1 if issued_at is None else issued_at
        return self.tickets.seal(channels, issued_at=issued_at, expires=now + SECONDS, subject=subject)

    def expiry(self, ticket: str, *channels: str) -> float | None:
        """When a ticket for these channels expires; None if it is not one."""
        grant = self.tickets.open(ticket, channels)
        return None if grant is None else grant.valid_until

    def is_quiet(self) -> bool:
        """Whether no poll is held, on any channel."""
        self.check()
        return self.polls.count == 0


class Connected:
    """An authorized node behind an edge."""

    def __init__(self) -> None:
        self.node = AuthorizedNode()
        self.server = InMemoryServer(self.node.api, clock=self.node.clock)

    def poll(self, parameters: str = "channel=a&timeout=20", *headers: str) -> Client:
        client = self.server.connect()
        client.send(poll_bytes(parameters, *headers))
        return client


def poll_bytes(parameters: str = "channel=a&timeout=20", *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join((f"{method} /v1/poll?{parameters} HTTP/1.1", "Host: x", *headers, "", "")).encode()
