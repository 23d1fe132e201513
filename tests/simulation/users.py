"""Users with signed tokens, and the revocations that end them: a check of its own, by what clients send and are told.

A publication that begins after a revocation was acknowledged has a later place in the order. So none of its messages
may reach a client on a token that was issued before. Users whose token is refused log in again, and continue with
their cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jwt

from loadtest.history.events import BrokenPromise
from pushup.tokens.token_settings import TokenSettings
from tests.simulation.clients import PUBLISHER_SECONDS, key_of
from tests.simulation.http import HttpClient, Message, request
from tests.simulation.network import Network
from tests.simulation.record import Record
from tests.simulation.world import Process, World

SECRET = "a secret of the simulated application"

SETTINGS = TokenSettings(token_issuer="app", token_audience="pushup", token_secrets=(SECRET.replace(" ", "-"),))

LIFETIME_SECONDS = 600
"""Of tokens: longer than a run."""

LOG_IN_SECONDS = 1.1
"""How long a user takes to log in again. A token of the second in which others were revoked is revoked, too."""


class Revoked(NamedTuple):
    """A revocation of what was issued before some time, and when in the record it was acknowledged."""

    issued_before: float
    acknowledged_at: float


class Users:
    """What is known of all users, and whoever revokes their tokens."""

    def __init__(self, world: World, network: Network, record: Record) -> None:
        self.world = world
        self._network = network
        self._record = record
        self._process = Process(world, "application")
        self._revoked: dict[str, list[Revoked]] = {}

    def revoke(self, subject: str, host: str) -> None:
        """Revoke what was issued to a user until now."""
        client = HttpClient(self._network, self._process)
        headers = {"Authorization": f"Bearer {key_of('p0')}"}

        def replied(reply: Message | None) -> None:
            client.drop()
            self.world.tell(f"application: {'no reply' if reply is None else reply.body.decode()}")
            if reply is not None and reply.status == 200:
                self._revoked.setdefault(subject, []).append(Revoked(reply.json["issued_before"], self._record.now))

        self.world.tell(f"application: revokes what {subject} has, at {host}")
        client.ask(host, request("POST", "/v1/revoke", {"sub": subject}, **headers), PUBLISHER_SECONDS, replied)

    def check(self, subject: str, issued_at: int, data: str) -> None:
        """A message with this data has come to a client on a token of this user. Raises: BrokenPromise."""
        publication = self._record.checker.publications[data.rpartition("/")[0]]
        for revoked in self._revoked.get(subject, ()):
            if issued_at < revoked.issued_before and publication.began_at > revoked.acknowledged_at:
                raise BrokenPromise(
                    f"nothing after a revocation: {subject}, whose token is of {issued_at}, got {data}, "
                    f"published after {revoked} was acknowledged"
                )


class Session:
    """A user of one client, with the token of the last log-in."""

    def __init__(self, users: Users, subject: str) -> None:
        self.subject = subject
        self._users = users
        self._sent_at = 0
        self.log_in()

    def again(self) -> Session:
        """The same user, logged in elsewhere as well."""
        return Session(self._users, self.subject)

    def log_in(self) -> None:
        self.issued_at = int(self._users.world.now)
        claims = {
            "iss": "app", "aud": "pushup", "sub": self.subject, "iat": self.issued_at,
            "exp": self.issued_at + LIFETIME_SECONDS, "pushup": {"poll": ["*"]},
        }  # fmt: skip
        self.headers = {"Authorization": f"Bearer {jwt.encode(claims, SETTINGS.token_secrets[0], algorithm='HS256')}"}
        self._logs_in = False

    def refused(self, text: str, later: Callable[[float, Callable[[], None]], object]) -> None:
        """A request, or a stream, has ended with this; `later` calls later."""
        if "urn:pushup:revoked" in text and not self._logs_in:
            self._users.world.reach("a poll or a stream ended because of a revocation")
            self._logs_in = True
            later(LOG_IN_SECONDS, self.log_in)

    def begin(self) -> dict[str, str]:
        """A request is sent; its header fields."""
        self._sent_at = self.issued_at
        return self.headers

    def got(self, data: str) -> None:
        """A message has come, on the token that was sent last. Raises: BrokenPromise."""
        self._users.check(self.subject, self._sent_at, data)
