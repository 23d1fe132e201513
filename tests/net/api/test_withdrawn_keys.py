"""What is held on a key ends with it: on a token's, a ticket's, and a publish key that may poll."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pushup.backends.tickets import Tickets
from pushup.net.api.channel_rules import ChannelRules
from pushup.tokens.signing_keys import secret_keys
from pushup.tokens.verifier import Verifier
from tests.net.authorized_node import AuthorizedNode
from tests.net.event_reader import read_chunks, read_events
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.in_memory_server import InMemoryServer
from tests.tokens.evil_tokens import NOW, OTHER_SECRET, SECRET, issuer, token

READER = "reader a-key-of-sixteen-letters read=user:*"
WITH_KEY = {"Authorization": "Bearer a-key-of-sixteen-letters"}


class KeyNode(InMemoryNode):
    """A node that accepts the tokens of two secrets, and a publish key that may poll."""

    def __init__(self) -> None:
        super().__init__(
            tokens=self.verifier(SECRET, OTHER_SECRET), publish_keys=(READER,), rules=ChannelRules("token")
        )
        self.advance(NOW - self.clock.seconds())

    def verifier(self, *secrets: str) -> Verifier:
        return Verifier([issuer(*secret_keys(secrets))], lambda: self.clock.seconds())

    def hold(self, call: str, **headers: str) -> RecordingExchange:
        held = self.begin("GET", f"/v1/{call}?channel=user:7&cursor=now", **headers)
        assert held.held is not None
        return held

    def use(self, *secrets: str) -> None:
        """As SIGHUP, with these secrets."""
        self.access.use_tokens(self.verifier(*secrets), "")
        self.poll_access.end_withdrawn()
        self.run()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def why_ended(exchange: RecordingExchange) -> str | None:
    """The code of the error with which a poll or a stream has ended; None if it is held."""
    if exchange.held is not None:
        return None
    if exchange.streamed is None:
        error: Any = json.loads(exchange.responses[0].body)
    else:
        content, is_complete = read_chunks(exchange.written)
        last = read_events(content)[-1]
        assert is_complete
        assert last.event == "error"
        error = last.data
    assert error["status"] == 401
    return str(error["type"]).removeprefix("urn:pushup:")


@pytest.mark.parametrize("call", ["poll", "events"])
@pytest.mark.parametrize("named", [{}, {"sub": None}, {"jti": "a"}])
def test_a_signing_key(call: str, named: dict[str, Any]) -> None:
    """What is held on tokens of the key ends, whether they name somebody or not; what is held on the other's stays."""
    node = KeyNode()
    old = node.hold(call, **bearer(token(**named)))
    new = node.hold(call, **bearer(token(number=1, **named)))
    node.use(SECRET, f"a-name {OTHER_SECRET}")
    assert (why_ended(old), why_ended(new)) == (None, None)
    node.use(OTHER_SECRET)
    assert (why_ended(old), why_ended(new)) == ("invalid-token", None)
    node.use()
    assert why_ended(new) == "invalid-token"
    assert not node.node.held_on_grants.names


def test_an_end_that_comes_earlier() -> None:
    """A key that gets an end: what is held for longer has to come back; what ends before it stays."""
    node = KeyNode()
    until = "valid_until=2027-01-15T08:03:00Z"  # 180 s from now; tokens are accepted 10 s longer than they say
    long = node.hold("events", **bearer(token(exp=NOW + 171)))
    short = node.hold("events", **bearer(token(exp=NOW + 170)))
    node.use(f"{SECRET} {until}")
    assert (why_ended(long), why_ended(short)) == ("invalid-token", None)
    again = node.hold("events", **bearer(token(exp=NOW + 171)))
    node.use(f"{SECRET} {until}")
    assert why_ended(again) is None


@pytest.mark.parametrize("call", ["poll", "events"])
def test_a_publish_key_that_polls(call: str) -> None:
    """Also when it stays, with fewer rights."""
    node = KeyNode()
    for keys in ((), ("other another-key-of-sixteen",), (READER.replace("user:", "team:"),)):
        node.access.use_publish_keys((READER,))
        held = node.hold(call, **WITH_KEY)
        node.poll_access.end_withdrawn()
        node.run()
        assert why_ended(held) is None
        node.access.use_publish_keys(keys)
        node.poll_access.end_withdrawn()
        node.run()
        assert why_ended(held) == "unauthorized"


@pytest.mark.parametrize("call", ["poll", "events"])
@pytest.mark.parametrize("subject", ["", "ann"])
def test_a_ticket_key(call: str, subject: str) -> None:
    """What is held on a ticket ends, as if the ticket had; what the application has just allowed stays."""
    node = AuthorizedNode()
    node.application.subject = subject
    on_ticket = node.begin("GET", f"/v1/{call}?channel=a", pushup_ticket=node.ticket("a", subject=subject))
    allowed = node.begin("GET", f"/v1/{call}?channel=a")
    node.application.allow()
    node.poll_access.end_withdrawn()
    node.run()
    assert (why_ended(on_ticket), why_ended(allowed)) == (None, None)
    node.authorization.use_tickets(Tickets(b"another key"))
    node.poll_access.end_withdrawn()
    node.run()
    assert (why_ended(on_ticket), why_ended(allowed)) == ("ticket-expired", None)


@pytest.mark.parametrize("call", ["poll", "events"])
def test_the_end_of_a_ticket(call: str) -> None:
    """Polls and streams say alike that their ticket has ended."""
    node = AuthorizedNode()
    timeout = "&timeout=80" if call == "poll" else ""
    held = node.begin("GET", f"/v1/{call}?channel=a{timeout}", pushup_ticket=node.ticket("a"))
    for _ in range(61):
        node.advance(1)
        node.run()
    assert why_ended(held) == "ticket-expired"


# A request is admitted by its head. Until it begins, its key may go, or its token end.

WRITER = "writer another-key-of-16-letters"
BODIES = {"poll": b'{"channels": ["user:7"]}', "events": b'{"channels": ["user:7"]}'}
MESSAGE = b'{"channels": ["user:7"], "data": 1}'
PUBLISHING = {"poll": ["user:7"], "publish": ["user:7"]}


def request(call: str, text: str) -> tuple[bytes, bytes]:
    """Its head and its body."""
    body = BODIES.get(call, MESSAGE)
    head = f"POST /v1/{call} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {text}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode(), body


@pytest.mark.parametrize("is_pipelined", [False, True])
@pytest.mark.parametrize(
    ("call", "text"),
    [
        pytest.param(call, text, id=f"{call}-{kind}")
        for call, key in (("poll", READER), ("events", READER), ("messages", WRITER))
        for kind, text in (("token", token(pushup=PUBLISHING)), ("key", key.split()[1]))
    ],
)
def test_a_key_that_goes_before_a_request_begins(call: str, text: str, is_pipelined: bool) -> None:
    """While its body is on its way, or while it waits behind a poll that is held."""
    node = KeyNode()
    node.access.use_publish_keys((READER, WRITER))
    client = InMemoryServer(node.api, clock=node.clock).connect()
    head, body = request(call, text)
    if is_pipelined:
        client.send(b"".join(request("poll", token(number=1))))
        client.send(head + body)
    else:
        client.send(head)
    node.access.use_publish_keys(("third yet-another-key-of-16-letters",))
    node.use(OTHER_SECRET)
    if is_pipelined:
        node.advance(60)
        node.run()
        client.send(b"")
    else:
        client.send(body)
    assert client.replies()[-1].status in (401, 403)
    assert not node.node.held_on_grants.names
    assert node.state.cursor.sequence == 0


@pytest.mark.parametrize("call", ["poll", "events", "messages"])
def test_a_token_that_ends_before_a_request_begins(call: str) -> None:
    node = KeyNode()
    client = InMemoryServer(node.api, clock=node.clock).connect()
    head, body = request(call, token(exp=NOW - 9, pushup=PUBLISHING))  # accepted for 10 s longer
    client.send(head)
    node.advance(2)
    client.send(body)
    reply = client.reply()
    assert (reply.status, b"token-expired" in reply.body) == (401, True)
    assert node.state.cursor.sequence == 0
