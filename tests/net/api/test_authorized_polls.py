"""Polls where not everybody may poll everything, on a whole node without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from pushup.backends.authorization import Authorization
from pushup.backends.tickets import Tickets
from pushup.core.errors import BadRequest, Forbidden, Overloaded, PushUpError, Unauthorized, Unavailable
from pushup.core.limits import Limits
from pushup.core.subscription import Subscription
from pushup.drain import SLICE
from pushup.net.api.authorized_polls import AuthorizedPolls
from pushup.net.api.bodies import write
from pushup.net.problems import problem_type
from pushup.net.responses import Response
from pushup.node import Node
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.in_memory_server import Client, InMemoryServer

SECONDS = 60
"""How long the tickets of these tests are good."""


class Application:
    """Answers questions when the test does; or at once, where it is told how."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], dict[bytes, bytes]]] = []
        self.verdicts: list[Deferred[float | None]] = []
        self.cancelled = 0
        self.at_once: Callable[[tuple[str, ...]], float | Exception] | None = None

    def __call__(self, channels: tuple[str, ...], headers: Mapping[bytes, bytes]) -> Deferred[float | None]:
        self.asked.append((channels, dict(headers)))
        if self.at_once is not None:
            said = self.at_once(channels)
            return fail(said) if isinstance(said, Exception) else succeed(said)
        self.verdicts.append(Deferred(self._cancel))
        return self.verdicts[-1]

    def stop(self) -> None:
        raise AssertionError("not stopped here")

    def renew_connections(self) -> None:
        raise AssertionError("not reloaded here")

    def _cancel(self, verdict: object) -> None:
        self.cancelled += 1

    def allow(self, number: int = -1) -> None:
        self.verdicts[number].callback(float(SECONDS))

    def refuse(self, error: Exception) -> None:
        self.verdicts[-1].errback(error)


class AuthorizedNode(InMemoryNode):
    """A node whose application has to allow polls."""

    def __init__(self, *, strict_channels: bool = False, limit_bytes: int = 10**6) -> None:
        self.limit_bytes = limit_bytes
        self.application = Application()
        self.tickets = Tickets(b"a key")
        super().__init__(
            limits=Limits(strict_channels=strict_channels, retention_seconds=600.0), authorized_polls=self._polls
        )

    def _polls(self, node: Node[Any], clock: Clock) -> AuthorizedPolls:
        authorization = Authorization(
            self.application, tickets=self.tickets, ticket_seconds=120.0, clock=clock, random=lambda: 0.0
        )
        return AuthorizedPolls(node, authorization, clock, self.limit_bytes)

    def begin_poll(self, query: str, ticket: str = "", **headers: str) -> RecordingExchange:
        if ticket:
            headers["pushup_ticket"] = ticket
        return self.begin("GET", f"/v1/poll?{query}", **headers)

    def ticket(self, *channels: str) -> str:
        """A ticket that is good from now on."""
        return self.tickets.seal(channels, int(self.clock.seconds()) + SECONDS)

    def is_quiet(self) -> bool:
        """Whether nothing is held, on any channel."""
        self.check()
        return self.polls.count == 0


def response_of(exchange: RecordingExchange) -> Response:
    """What the request was responded to."""
    (response,) = exchange.responses
    return response


def body_of(exchange: RecordingExchange) -> dict[str, Any]:
    """The answer to a poll, with a ticket or without, as the client reads it."""
    if exchange.answers:
        text = write(exchange.answers[0])
    else:
        response = response_of(exchange)
        assert response.status == 200
        text = response.body
    body: dict[str, Any] = json.loads(text)
    return body


def data_of(exchange: RecordingExchange) -> list[Any]:
    """What the messages of an answer say."""
    return [message["data"] for message in body_of(exchange)["messages"]]


def problem_of(exchange: RecordingExchange) -> tuple[int, str]:
    """The status and the kind of the problem that came."""
    response = response_of(exchange)
    assert response.content_type == b"application/problem+json"
    return response.status, json.loads(response.body)["type"].removeprefix("urn:pushup:")


# Asking.


def test_a_poll_waits_for_the_verdict() -> None:
    """A poll without a ticket is asked about, and then answered like any other, with a ticket."""
    node = AuthorizedNode()
    node.publish("a", data=1)
    exchange = node.begin_poll("channel=b&channel=a&cursor=earliest", cookie="session=x")
    assert node.application.asked == [(("b", "a"), {b"cookie": b"session=x"})]
    assert isinstance(exchange.held, Deferred)
    assert node.is_quiet()
    node.application.allow()
    body = body_of(exchange)
    assert [message["data"] for message in body["messages"]] == [1]
    assert list(body) == ["cursor", "messages", "more", "gaps", "closed", "ticket"]
    assert node.tickets.expires(body["ticket"], ("a", "b")) == node.clock.seconds() + SECONDS


def test_a_poll_in_a_body() -> None:
    """A poll that comes with POST is asked about, too, and its ticket comes in the same header field."""
    node = AuthorizedNode()
    node.application.at_once = lambda channels: 60.0
    body = {"channels": ["a"], "timeout": 0}
    first = node.begin("POST", "/v1/poll", body)
    assert node.application.asked[0][0] == ("a",)
    ticket = body_of(first)["ticket"]
    again = node.begin("POST", "/v1/poll", body, pushup_ticket=ticket)
    assert body_of(again)["messages"] == []
    assert len(node.application.asked) == 1


def test_a_verdict_at_once() -> None:
    """An application that says yes or no at once is heard all the same."""
    node = AuthorizedNode()
    node.application.at_once = lambda channels: 60.0
    assert "ticket" in body_of(node.begin_poll("channel=a&timeout=0"))
    node.application.at_once = lambda channels: Forbidden("no")
    assert problem_of(node.begin_poll("channel=a&timeout=0")) == (403, "forbidden")
    held = node.begin_poll("channel=a&timeout=5", node.ticket("a"))
    assert isinstance(held.held, Subscription)


def test_the_ticket_comes_with_the_answer_to_a_held_poll() -> None:
    """A poll that is held once it is allowed gets its message and its ticket together."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.allow()
    assert isinstance(exchange.held, Subscription)
    assert node.polls.count == 1
    node.publish("a", data="hello")
    body = body_of(exchange)
    assert body["messages"][0]["data"] == "hello"
    assert node.tickets.expires(body["ticket"], ("a",)) is not None
    assert node.is_quiet()


def test_a_message_between_the_question_and_the_verdict() -> None:
    """What is published while the application is asked is not missed."""
    node = AuthorizedNode()
    exchange = node.begin_poll(f"channel=a&timeout=20&cursor={node.state.cursor}")
    node.publish("a", data="meanwhile")
    assert not exchange.responses
    assert not exchange.answers
    node.application.allow()
    assert data_of(exchange) == ["meanwhile"]


def test_asked_once() -> None:
    """With the ticket of the first answer a chain of polls goes on without a question, and without another ticket."""
    node = AuthorizedNode()
    node.application.at_once = lambda channels: float(SECONDS)
    body = body_of(node.begin_poll("channel=a&timeout=0"))
    ticket, cursor = body["ticket"], body["cursor"]
    for number in range(50):
        exchange = node.begin_poll(f"channel=a&cursor={cursor}&timeout=20", ticket)
        node.publish("a", data=number)
        assert data_of(exchange) == [number]
        (answer,) = exchange.answers  # as it is encoded once for all: nothing of this client's own is in it
        cursor = answer.cursor
    assert len(node.application.asked) == 1


def test_equal_answers_stay_one_object() -> None:
    """Polls with tickets that get the same are given one and the same answer, as without tickets."""
    node = AuthorizedNode()
    exchanges = [node.begin_poll("channel=a&timeout=20", node.ticket("a")) for _ in range(50)]
    node.publish("a", data=1)
    assert len({id(exchange.answers[0]) for exchange in exchanges}) == 1


@pytest.mark.parametrize("ticket", ["", "x", "1800000060." + "A" * 32])
def test_a_bad_ticket_is_as_none(ticket: str) -> None:
    """A ticket that is not good is not held against anybody: the application is asked."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=0", ticket)
    assert len(node.application.asked) == 1
    node.application.allow()
    assert "ticket" in body_of(exchange)


def test_a_ticket_for_other_channels() -> None:
    """A ticket for some channels lets nobody poll others, nor fewer, nor more."""
    node = AuthorizedNode()
    ticket = node.ticket("a", "b")
    for number, channels in enumerate((("a",), ("b",), ("c",), ("a", "b", "c")), 1):
        node.begin_poll("timeout=0&" + "&".join(f"channel={c}" for c in channels), ticket)
        assert len(node.application.asked) == number
    node.begin_poll("timeout=0&channel=b&channel=a&channel=b", ticket)
    assert len(node.application.asked) == 4


def test_asked_again_when_the_ticket_is_over() -> None:
    """When its ticket is over a client is asked about again, and given a new one."""
    node = AuthorizedNode()
    node.application.at_once = lambda channels: float(SECONDS)
    ticket = body_of(node.begin_poll("channel=a&timeout=0"))["ticket"]
    node.clock.advance(SECONDS - 0.001)
    node.begin_poll("channel=a&timeout=0", ticket)
    assert len(node.application.asked) == 1
    node.clock.advance(0.001)
    body = body_of(node.begin_poll("channel=a&timeout=0", ticket))
    assert len(node.application.asked) == 2
    assert node.tickets.expires(body["ticket"], ("a",)) == node.clock.seconds() + SECONDS


# Refusals.


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Unauthorized("who are you?"), 401, None),
        (Forbidden("no"), 403, None),
        (BadRequest("too long", field="channels"), 400, None),
        (Overloaded("many", retry_after=2), 503, b"2"),
        (Unavailable("down", retry_after=3), 503, b"3"),
    ],
)
def test_refusals(error: PushUpError, status: int, retry_after: bytes | None) -> None:
    """Who may not, and who cannot be asked about, is told so, and when to come again; nothing is held."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.refuse(error)
    assert problem_of(exchange) == (status, problem_type(type(error)).code)
    headers = dict(response_of(exchange).headers)
    assert headers.get(b"Retry-After") == retry_after
    assert (b"WWW-Authenticate" in headers) == (status == 401)
    assert node.is_quiet()


def test_an_unexpected_error(logged_failures: list[str]) -> None:
    """A fault in the asking is logged, and the client is told no more than that there is one."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.refuse(ZeroDivisionError("a secret"))
    assert problem_of(exchange) == (500, "internal-error")
    assert b"secret" not in response_of(exchange).body
    (logged,) = logged_failures
    assert "a secret" in logged
    logged_failures.clear()


def test_bad_parameters_are_not_asked_about() -> None:
    """A poll that is malformed is refused before anybody is asked."""
    node = AuthorizedNode()
    assert problem_of(node.begin_poll("channel=a&timeout=-1")) == (400, "bad-request")
    assert problem_of(node.begin_poll("")) == (400, "bad-request")
    assert node.application.asked == []


@pytest.mark.parametrize("error", [Unauthorized("?"), Forbidden("no"), Unavailable("down", retry_after=2)])
@pytest.mark.parametrize("strict_channels", [False, True])
def test_refusals_do_not_tell_what_exists(error: PushUpError, strict_channels: bool) -> None:
    """Who may not poll is told the same of channels that live, that do not, that were closed, and of ids."""
    node = AuthorizedNode(strict_channels=strict_channels)
    node.application.at_once = lambda channels: error
    id_ = node.call("POST", "/v1/channels", {"name": "lives"}).json["id"]
    node.call("POST", "/v1/channels", {"name": "closed"})
    node.publish("lives", data="secret")
    node.call("DELETE", "/v1/channels/closed")
    responses = {
        response_of(node.begin_poll(f"channel={name}&cursor={cursor}&timeout=0"))
        for name in ("lives", "closed", "never", str(id_), str(id_ + 1))
        for cursor in ("earliest", "now", "e-1", "f-9")
    }
    (response,) = responses
    assert response.status == problem_type(type(error)).status


def test_an_unknown_channel_is_told_to_who_may() -> None:
    """With strict channels, who may poll a channel is told when it does not exist, with a ticket and without."""
    node = AuthorizedNode(strict_channels=True)
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.allow()
    assert problem_of(exchange) == (404, "unknown-channel")
    assert problem_of(node.begin_poll("channel=a&timeout=20", node.ticket("a"))) == (404, "unknown-channel")
    assert node.is_quiet()


# Names and ids.


def test_an_id_of_a_channel_with_a_name() -> None:
    """The application knows names: who may poll a number does not get the channel with that id, only by its name."""
    node = AuthorizedNode()
    node.application.at_once = lambda channels: Forbidden("no") if "private" in channels else 60.0
    node.publish("private", data="secret")
    id_ = str(node.call("GET", "/v1/channels/private").json["id"])
    none = str(int(id_) + 1)
    answers = {
        response_of(node.begin_poll(f"channel={channel}&cursor=earliest&timeout=20", ticket)).body.replace(
            channel.encode(), b"?"
        )
        for channel in (id_, none)
        for ticket in ("", node.ticket(channel))
    }
    assert len(answers) == 1, "whether the id is one is not told"
    assert problem_of(node.begin_poll(f"channel={id_}&timeout=0")) == (404, "unknown-channel")
    assert problem_of(node.begin_poll(f"channel=public&channel={id_}&timeout=0")) == (404, "unknown-channel")
    assert problem_of(node.begin_poll("channel=private&timeout=0")) == (403, "forbidden")
    assert [channels for channels, _ in node.application.asked][:2] == [(id_,), (none,)]
    assert node.is_quiet()


def test_an_id_that_begins_to_live_while_it_is_asked_about() -> None:
    """Ids can be guessed: one that a private channel gets before the verdict on the number comes gives nothing."""
    node = AuthorizedNode()
    id_ = str(int(node.clock.seconds() * 1000))
    exchange = node.begin_poll(f"channel={id_}&cursor=earliest&timeout=20")
    assert str(node.call("POST", "/v1/channels", {"name": "private"}).json["id"]) == id_
    node.publish("private", data="secret")
    node.application.allow()
    assert problem_of(exchange) == (404, "unknown-channel")
    assert problem_of(node.begin_poll(f"channel={id_}&timeout=20", node.ticket(id_))) == (404, "unknown-channel")
    assert node.is_quiet()


def test_a_channel_without_a_name() -> None:
    """A channel that was made without a name is asked about by its id, which is its name."""
    node = AuthorizedNode()
    id_ = str(node.call("POST", "/v1/channels", {}).json["id"])
    exchange = node.begin_poll(f"channel={id_}&timeout=0")
    assert node.application.asked[0][0] == (id_,)
    node.application.allow()
    assert data_of(exchange) == []


# Held polls and the end of tickets.


def test_a_held_poll_ends_with_its_ticket() -> None:
    """A held poll ends with 401 ticket-expired when its ticket is over, at that second and not before."""
    node = AuthorizedNode()
    node.clock.advance(0.3)
    ticket = node.ticket("a")
    expires = int(ticket.partition(".")[0])
    node.clock.advance(SECONDS - 10)
    exchange = node.begin_poll("channel=a&timeout=50", ticket)
    node.clock.advance(expires - node.clock.seconds() - 0.001)
    assert not exchange.responses
    assert not exchange.answers
    node.clock.advance(0.001)
    assert node.clock.seconds() == expires
    assert problem_of(exchange) == (401, "ticket-expired")
    assert node.is_quiet()


def test_a_new_ticket_ends_a_held_poll_too() -> None:
    """A ticket that was given to this very poll bounds it, too; the client comes again without it."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=100")
    node.clock.advance(5.0)
    node.application.allow()
    node.clock.advance(SECONDS - 1)
    assert isinstance(exchange.held, Subscription)
    node.clock.advance(1)
    assert problem_of(exchange) == (401, "ticket-expired")


def test_a_timeout_before_the_ticket_is_over() -> None:
    """A poll whose own time is over first is answered as ever."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20", node.ticket("a"))
    node.clock.advance(20.0)
    assert data_of(exchange) == []


def test_the_cursor_stays_good() -> None:
    """A client whose ticket ended while it was held misses nothing when it comes again with its old cursor."""
    node = AuthorizedNode()
    node.publish("a", data="before")
    cursor = str(node.state.cursor)
    exchange = node.begin_poll(f"channel=a&cursor={cursor}&timeout=100", node.ticket("a"))
    node.advance(SECONDS)
    assert problem_of(exchange) == (401, "ticket-expired")
    node.publish("a", data="after")
    again = node.begin_poll(f"channel=a&cursor={cursor}&timeout=20")
    node.application.allow()
    assert data_of(again) == ["after"]


def test_a_message_just_before_the_end() -> None:
    """A message that comes while the ticket is good is delivered."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=100", node.ticket("a"))
    node.clock.advance(SECONDS - 0.001)
    node.publish("a", data="just in time")
    assert data_of(exchange) == ["just in time"]
    node.clock.advance(10.0)
    assert len(exchange.answers) == 1


def test_a_message_that_comes_out_too_late() -> None:
    """A message whose slice comes when the ticket is over is not delivered; it is there for the next poll."""
    node = AuthorizedNode()
    cursor = str(node.state.cursor)
    ticket = node.ticket("a")
    exchanges = [node.begin_poll(f"channel=a&cursor={cursor}&timeout=100", ticket) for _ in range(SLICE + 1)]
    node.call("POST", "/v1/messages", {"channels": ["a"], "data": "secret"})
    node.turn()
    (late,) = [exchange for exchange in exchanges if exchange.held is not None]
    node.clock.advance(SECONDS)
    node.run()
    assert problem_of(late) == (401, "ticket-expired")
    again = node.begin_poll(f"channel=a&cursor={cursor}&timeout=0", node.ticket("a"))
    assert data_of(again) == ["secret"]


def test_each_poll_ends_with_its_own_ticket() -> None:
    """Polls on one channel with tickets of different times end each at its own."""
    node = AuthorizedNode()
    ends = {}
    for seconds in (30, 10, 20):
        ticket = node.tickets.seal(("a",), int(node.clock.seconds()) + seconds)
        ends[seconds] = node.begin_poll("channel=a&timeout=100", ticket)
    for second in range(1, 31):
        node.clock.advance(1.0)
        assert {s for s, exchange in ends.items() if exchange.responses} == {s for s in ends if s <= second}


# Clients that go, and nodes that stop.


def test_a_client_that_goes_while_it_is_asked_about() -> None:
    """The question about a client that is gone is cancelled, and nothing is left of it."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    assert exchange.held is not None
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 1
    assert not exchange.responses
    assert not exchange.answers
    assert node.is_quiet()
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 1


def test_a_client_that_goes_while_it_is_held() -> None:
    """A client that goes after the verdict leaves nothing behind, nor is the question cancelled that was answered."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.allow()
    assert exchange.held is not None
    assert node.polls.count == 1
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 0
    assert node.is_quiet()
    node.publish("a")
    node.clock.advance(SECONDS)
    assert not exchange.responses
    assert not exchange.answers


def test_a_verdict_while_the_node_drains() -> None:
    """A poll that is allowed while the node stops is answered at once, with its ticket."""
    node = AuthorizedNode()
    exchange = node.begin_poll("channel=a&timeout=20")
    node.node.drain(0.0)
    node.application.allow()
    assert "ticket" in body_of(exchange)
    assert node.is_quiet()


def test_what_waits_for_verdicts_is_limited_by_bytes() -> None:
    """Heads and names count: past the limit it is 503, until verdicts come, whatever they are, or clients go."""
    node = AuthorizedNode(limit_bytes=20_000)
    cookie = "x" * 5000
    asked = [node.begin_poll(f"channel={number}a&timeout=20", cookie=cookie) for number in range(3)]
    for _ in range(3):
        refused = node.begin_poll("channel=a", cookie=cookie)
        assert (refused.responses[0].status, dict(refused.responses[0].headers)[b"Retry-After"]) == (503, b"2")
    assert len(node.application.verdicts) == 3
    node.application.allow(0)
    node.application.verdicts[1].errback(Forbidden("no"))
    assert isinstance(asked[2].held, Deferred)
    node.api.abandon(asked[2].held)
    for number in range(3):
        assert isinstance(node.begin_poll(f"channel={number}b", cookie=cookie).held, Deferred)
    assert len(node.application.verdicts) == 6


# Over connections.


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


@pytest.mark.parametrize("go", [Client.end, Client.reset])
def test_a_connection_that_ends_while_it_is_asked_about(go: Callable[[Client], None]) -> None:
    """A client that closes or vanishes takes the question about it along, and its connection is closed."""
    connected = Connected()
    client = connected.poll()
    go(client)
    assert connected.node.application.cancelled == 1
    assert client.closed()
    assert connected.server.edge.connection_count == 0


def test_a_client_that_is_gone_when_its_second_poll_begins() -> None:
    """A poll that is begun for a client that has ended meanwhile is asked about no further."""
    connected = Connected()
    client = connected.server.connect()
    connected.node.application.at_once = lambda channels: Forbidden("no")
    client.read(0)
    client.send(poll_bytes() * 2)
    connected.node.application.at_once = None
    client.end()
    client.read(None)
    assert client.closed()
    assert connected.server.edge.connection_count == 0
    assert connected.node.application.cancelled == len(connected.node.application.verdicts) == 1
    assert connected.node.is_quiet()


def test_a_pipeline() -> None:
    """Polls behind one that is asked about wait for it, and are answered in order."""
    connected = Connected()
    node = connected.node
    client = connected.server.connect()
    client.send(
        poll_bytes("channel=a&timeout=0") + poll_bytes("channel=b&timeout=0") + poll_bytes("channel=c&timeout=0")
    )
    assert [channels for channels, _ in node.application.asked] == [("a",)]
    node.application.allow()
    node.application.refuse(Forbidden("no"))
    node.application.allow()
    assert [reply.status for reply in client.replies()] == [200, 403, 200]


def test_a_head() -> None:
    """A HEAD is asked about as a GET is, and has no body."""
    connected = Connected()
    client = connected.server.connect()
    client.send(poll_bytes("channel=a&timeout=0", method="HEAD"))
    connected.node.application.allow()
    reply = client.reply(head=True)
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0


def test_the_ticket_of_a_connection() -> None:
    """The header field with the ticket is found however its name is written."""
    connected = Connected()
    for name in ("PushUp-Ticket", "pushup-ticket", "PUSHUP-TICKET"):
        client = connected.poll("channel=a&timeout=0", f"{name}: {connected.node.ticket('a')}")
        reply = client.reply()
        assert reply.status == 200
        assert "ticket" not in json.loads(reply.body)
    twice = f"PushUp-Ticket: {connected.node.ticket('a')}"
    connected.poll("channel=a&timeout=0", twice, twice)
    assert len(connected.node.application.asked) == 1


def test_many_that_are_asked_about_at_once() -> None:
    """1,000 polls wait for their verdicts, some go, the rest is allowed: each is answered or forgotten."""
    connected = Connected()
    node = connected.node
    clients = [connected.poll(f"channel=c{n}&timeout=20") for n in range(1000)]
    for client in clients[::3]:
        client.reset()
    assert node.application.cancelled == len(clients[::3])
    for number in range(1000):
        if number % 3:
            node.application.allow(number)
    assert node.polls.count == 1000 - len(clients[::3])
    for number in range(1000):
        if number % 3:
            node.publish(f"c{number}", data=number)
    for number, client in enumerate(clients):
        if number % 3:
            assert [m["data"] for m in json.loads(client.reply().body)["messages"]] == [number]
    assert node.is_quiet()
