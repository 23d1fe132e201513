"""Polls that an application has to authorize, on a complete node without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from pushup.core.errors import BadRequest, Forbidden, Overloaded, PushUpError, Unauthorized, Unavailable
from pushup.core.held_polls import SLICE
from pushup.net.api.bodies import write
from pushup.net.api.poll_access import APPLICATION_TOKEN_LIMIT
from pushup.net.api.polling import GrantedPoll
from pushup.net.http_errors import problem_type
from pushup.net.requests_and_responses import Response
from pushup.node.node import DEADLINE_STEP_SECONDS
from tests.net.authorized_node import SECONDS, AuthorizedNode, Connected, poll_bytes
from tests.net.event_reader import read_chunks
from tests.net.in_memory_node import RecordingExchange, events_of
from tests.net.in_memory_server import Client


@pytest.fixture
def node() -> AuthorizedNode:
    return AuthorizedNode()


def response_of(exchange: RecordingExchange) -> Response:
    """The response to the request, which must not be a poll's answer."""
    (response,) = exchange.responses
    return response


def body_of(exchange: RecordingExchange) -> dict[str, Any]:
    """The answer to a poll, with or without a ticket, as the client reads it."""
    if exchange.answers:
        text = write(exchange.answers[0])
    else:
        response = response_of(exchange)
        assert response.status == 200
        text = response.body
    body: dict[str, Any] = json.loads(text)
    return body


def data_of(exchange: RecordingExchange) -> list[Any]:
    """The data of the messages in an answer."""
    return [message["data"] for message in body_of(exchange)["messages"]]


def problem_of(exchange: RecordingExchange) -> tuple[int, str]:
    """The status and type of the problem in the response."""
    response = response_of(exchange)
    assert response.content_type == b"application/problem+json"
    return response.status, json.loads(response.body)["type"].removeprefix("urn:pushup:")


# Authorization requests.


def test_a_poll_waits_for_the_decision(node: AuthorizedNode) -> None:
    node.publish("a", data=1)
    exchange = node.begin_poll("channel=b&channel=a&cursor=earliest", cookie="session=x")
    assert node.application.asked == [(("b", "a"), {b"cookie": b"session=x"})]
    assert isinstance(exchange.held, Deferred)
    assert node.is_quiet()
    node.application.allow()
    body = body_of(exchange)
    assert [message["data"] for message in body["messages"]] == [1]
    assert list(body) == ["cursor", "messages", "more", "gaps", "closed", "ticket"]
    assert node.expiry(body["ticket"], "a", "b") == node.clock.seconds() + SECONDS


def test_a_poll_in_a_body(node: AuthorizedNode) -> None:
    """A poll sent with POST is authorized as well, and its ticket is in the same header field."""
    node.application.at_once = lambda channels: 60.0
    body = {"channels": ["a"], "timeout": 0}
    first = node.begin("POST", "/v1/poll", body)
    assert node.application.asked[0][0] == ("a",)
    ticket = body_of(first)["ticket"]
    again = node.begin("POST", "/v1/poll", body, pushup_ticket=ticket)
    assert body_of(again)["messages"] == []
    assert len(node.application.asked) == 1


def test_a_decision_at_once(node: AuthorizedNode) -> None:
    node.application.at_once = lambda channels: 60.0
    assert "ticket" in body_of(node.begin_poll("channel=a&timeout=0"))
    node.application.at_once = lambda channels: Forbidden("no")
    assert problem_of(node.begin_poll("channel=a&timeout=0")) == (403, "forbidden")
    held = node.begin_poll("channel=a&timeout=5", node.ticket("a"))
    assert isinstance(held.held, GrantedPoll)


def test_the_ticket_comes_with_the_answer_to_a_held_poll(node: AuthorizedNode) -> None:
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.allow()
    assert isinstance(exchange.held, GrantedPoll)
    assert node.polls.count == 1
    node.publish("a", data="hello")
    body = body_of(exchange)
    assert body["messages"][0]["data"] == "hello"
    assert node.expiry(body["ticket"], "a") is not None
    assert node.is_quiet()


def test_a_message_published_during_the_authorization(node: AuthorizedNode) -> None:
    exchange = node.begin_poll(f"channel=a&timeout=20&cursor={node.state.cursor}")
    node.publish("a", data="meanwhile")
    assert not exchange.responses
    assert not exchange.answers
    node.application.allow()
    assert data_of(exchange) == ["meanwhile"]


def test_asked_once(node: AuthorizedNode) -> None:
    """With the ticket of the first answer, later polls need no authorization and get no new ticket."""
    node.application.at_once = lambda channels: float(SECONDS)
    body = body_of(node.begin_poll("channel=a&timeout=0"))
    ticket, cursor = body["ticket"], body["cursor"]
    for number in range(50):
        exchange = node.begin_poll(f"channel=a&cursor={cursor}&timeout=20", ticket)
        node.publish("a", data=number)
        assert data_of(exchange) == [number]
        (answer,) = exchange.answers  # encoded once for all clients, so it contains nothing of this one
        cursor = answer.cursor
    assert len(node.application.asked) == 1


def test_equal_answers_stay_one_object(node: AuthorizedNode) -> None:
    """Polls with tickets that get the same messages share one answer, as without tickets."""
    exchanges = [node.begin_poll("channel=a&timeout=20", node.ticket("a")) for _ in range(50)]
    node.publish("a", data=1)
    assert len({id(exchange.answers[0]) for exchange in exchanges}) == 1


@pytest.mark.parametrize("ticket", ["", "x", "1800000060." + "A" * 32, "1800000000.1800000060.." + "A" * 32])
def test_a_bad_ticket_is_treated_as_none(node: AuthorizedNode, ticket: str) -> None:
    exchange = node.begin_poll("channel=a&timeout=0", ticket)
    assert len(node.application.asked) == 1
    node.application.allow()
    assert "ticket" in body_of(exchange)


def test_a_ticket_for_other_channels(node: AuthorizedNode) -> None:
    """A ticket is valid for exactly its channels, not for others, fewer or more."""
    ticket = node.ticket("a", "b")
    for number, channels in enumerate((("a",), ("b",), ("c",), ("a", "b", "c")), 1):
        node.begin_poll("timeout=0&" + "&".join(f"channel={c}" for c in channels), ticket)
        assert len(node.application.asked) == number
    node.begin_poll("timeout=0&channel=b&channel=a&channel=b", ticket)
    assert len(node.application.asked) == 4


def test_asked_again_when_the_ticket_has_expired(node: AuthorizedNode) -> None:
    node.application.at_once = lambda channels: float(SECONDS)
    ticket = body_of(node.begin_poll("channel=a&timeout=0"))["ticket"]
    node.clock.advance(SECONDS - 0.001)
    node.begin_poll("channel=a&timeout=0", ticket)
    assert len(node.application.asked) == 1
    node.clock.advance(0.001)
    body = body_of(node.begin_poll("channel=a&timeout=0", ticket))
    assert len(node.application.asked) == 2
    assert node.expiry(body["ticket"], "a") == node.clock.seconds() + SECONDS


# ErrorResponder.


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
def test_refusals(node: AuthorizedNode, error: PushUpError, status: int, retry_after: bytes | None) -> None:
    """Denied polls, and those that cannot be authorized, get an error and possibly a time to retry; none is held."""
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.refuse(error)
    assert problem_of(exchange) == (status, problem_type(type(error)).code)
    headers = dict(response_of(exchange).headers)
    assert headers.get(b"Retry-After") == retry_after
    assert (b"WWW-Authenticate" in headers) == (status == 401)
    assert node.is_quiet()


def test_an_unexpected_error(node: AuthorizedNode, logged_failures: list[str]) -> None:
    """A bug in an authorizer is logged, and the client learns only that there is one."""
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.refuse(ZeroDivisionError("a secret"))
    assert problem_of(exchange) == (500, "internal-error")
    assert b"secret" not in response_of(exchange).body
    (logged,) = logged_failures
    assert "a secret" in logged
    logged_failures.clear()


def test_bad_parameters_are_not_asked_about(node: AuthorizedNode) -> None:
    assert problem_of(node.begin_poll("channel=a&timeout=-1")) == (400, "bad-request")
    assert problem_of(node.begin_poll("")) == (400, "bad-request")
    assert node.application.asked == []


@pytest.mark.parametrize("error", [Unauthorized("?"), Forbidden("no"), Unavailable("down", retry_after=2)])
@pytest.mark.parametrize("strict_channels", [False, True])
def test_refusals_do_not_reveal_what_exists(error: PushUpError, strict_channels: bool) -> None:
    """A denied client gets the same response for channels that are open, unknown or closed, and for ids."""
    node = AuthorizedNode(strict_channels=strict_channels)
    node.application.at_once = lambda channels: error
    id_ = node.call("POST", "/v1/channels", {"name": "lives"}).json["id"]
    node.call("POST", "/v1/channels", {"name": "closed"})
    node.publish("lives", data="secret")
    node.call("DELETE", "/v1/channels/closed")
    responses = [
        response_of(node.begin_poll(f"channel={name}&cursor={cursor}&timeout=0"))
        for name in ("lives", "closed", "never", str(id_), str(id_ + 1))
        for cursor in ("earliest", "now", "e-1", "f-9")
    ]
    assert len({(r.status, r.body, r.content_type, r.headers, r.cache_control) for r in responses}) == 1
    assert responses[0].status == problem_type(type(error)).status


def test_an_unknown_channel_is_reported_to_authorized_clients() -> None:
    """With strict channels, an authorized client learns that a channel does not exist, with or without a ticket."""
    node = AuthorizedNode(strict_channels=True)
    exchange = node.begin_poll("channel=a&timeout=20")
    node.application.allow()
    assert problem_of(exchange) == (404, "unknown-channel")
    assert problem_of(node.begin_poll("channel=a&timeout=20", node.ticket("a"))) == (404, "unknown-channel")
    assert node.is_quiet()


# Names and ids.


def test_an_id_of_a_channel_with_a_name(node: AuthorizedNode) -> None:
    """Applications authorize names, so a client authorized for a number cannot poll the channel with that id."""
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
    assert len(answers) == 1, "the response reveals whether the id exists"
    assert problem_of(node.begin_poll(f"channel={id_}&timeout=0")) == (404, "unknown-channel")
    assert problem_of(node.begin_poll(f"channel=public&channel={id_}&timeout=0")) == (404, "unknown-channel")
    assert problem_of(node.begin_poll("channel=private&timeout=0")) == (403, "forbidden")
    assert [channels for channels, _ in node.application.asked][:2] == [(id_,), (none,)]
    assert node.is_quiet()


def test_an_id_that_is_given_during_the_authorization(node: AuthorizedNode) -> None:
    """Ids can be guessed, so a client authorized for a number does not get the private channel created with that id."""
    id_ = str(int(node.clock.seconds() * 1000))
    exchange = node.begin_poll(f"channel={id_}&cursor=earliest&timeout=20")
    assert str(node.call("POST", "/v1/channels", {"name": "private"}).json["id"]) == id_
    node.publish("private", data="secret")
    node.application.allow()
    assert problem_of(exchange) == (404, "unknown-channel")
    assert problem_of(node.begin_poll(f"channel={id_}&timeout=20", node.ticket(id_))) == (404, "unknown-channel")
    assert node.is_quiet()


def test_a_channel_without_a_name(node: AuthorizedNode) -> None:
    """A channel that was created without a name is authorized by its id, which is its name."""
    id_ = str(node.call("POST", "/v1/channels", {}).json["id"])
    exchange = node.begin_poll(f"channel={id_}&timeout=0")
    assert node.application.asked[0][0] == (id_,)
    node.application.allow()
    assert data_of(exchange) == []


# Held polls and the expiry of tickets.


@pytest.mark.parametrize("wall_ahead", [0.0, 1e9, -1e9])
def test_a_held_poll_ends_with_its_ticket(wall_ahead: float) -> None:
    """When its ticket expires, and not before, a held poll gets 401 ticket-expired, in whatever clock."""
    node = AuthorizedNode(wall_ahead=wall_ahead)
    node.clock.advance(0.3)
    ticket = node.ticket("a")
    expires = int(ticket.split(".")[1])
    node.clock.advance(SECONDS - 10)
    exchange = node.begin_poll("channel=a&timeout=50", ticket)
    node.clock.advance(expires - node.wall() - 0.001)
    assert not exchange.responses
    assert not exchange.answers
    node.clock.advance(0.001 + DEADLINE_STEP_SECONDS)
    assert problem_of(exchange) == (401, "ticket-expired")
    assert node.is_quiet()


def test_a_new_ticket_ends_a_held_poll_too(node: AuthorizedNode) -> None:
    """A ticket issued to the same poll ends it as well; the client polls again without it."""
    exchange = node.begin_poll("channel=a&timeout=100")
    node.clock.advance(5.0)
    node.application.allow()
    node.clock.advance(SECONDS - 1)
    assert isinstance(exchange.held, GrantedPoll)
    node.clock.advance(1)
    assert problem_of(exchange) == (401, "ticket-expired")


@pytest.mark.parametrize(("jump", "is_valid"), [(7200.0, False), (-3600.0, True)])
def test_a_jump_of_the_clock_of_tickets(node: AuthorizedNode, jump: float, is_valid: bool) -> None:
    """A ticket expires by the clock that all nodes compare it with; a held poll ends at the moment expected before."""
    ticket = node.ticket("a")
    exchange = node.begin_poll("channel=a&timeout=20", ticket)
    node.wall_ahead = jump
    assert isinstance(node.begin_poll("channel=a&timeout=20", ticket).held, GrantedPoll) is is_valid
    node.clock.advance(20.0)
    assert exchange.held is None
    assert bool(exchange.answers) is is_valid


def test_a_timeout_before_the_ticket_expires(node: AuthorizedNode) -> None:
    exchange = node.begin_poll("channel=a&timeout=20", node.ticket("a"))
    node.clock.advance(20.0)
    assert data_of(exchange) == []


def test_the_cursor_stays_valid(node: AuthorizedNode) -> None:
    """A client whose poll ended with its ticket misses nothing if it continues with its old cursor."""
    node.publish("a", data="before")
    cursor = str(node.state.cursor)
    exchange = node.begin_poll(f"channel=a&cursor={cursor}&timeout=100", node.ticket("a"))
    node.advance(SECONDS)
    assert problem_of(exchange) == (401, "ticket-expired")
    node.publish("a", data="after")
    again = node.begin_poll(f"channel=a&cursor={cursor}&timeout=20")
    node.application.allow()
    assert data_of(again) == ["after"]


def test_a_message_just_before_the_end(node: AuthorizedNode) -> None:
    exchange = node.begin_poll("channel=a&timeout=100", node.ticket("a"))
    node.clock.advance(SECONDS - 0.001)
    node.publish("a", data="just in time")
    assert data_of(exchange) == ["just in time"]
    node.clock.advance(10.0)
    assert len(exchange.answers) == 1


def test_a_message_delivered_too_late(node: AuthorizedNode) -> None:
    """A message whose delivery comes after the expiry is withheld, and is there for the next poll."""
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


def test_each_poll_ends_with_its_own_ticket(node: AuthorizedNode) -> None:
    ends = {}
    for seconds in (30, 10, 20):
        now = int(node.clock.seconds())
        ticket = node.tickets.seal(("a",), issued_at=now, expires=now + seconds, subject="")
        ends[seconds] = node.begin_poll("channel=a&timeout=100", ticket)
    for second in range(1, 31):
        node.clock.advance(1.0)
        assert {s for s, exchange in ends.items() if exchange.responses} == {s for s in ends if s <= second}


# Clients that disconnect, and nodes that stop.


def test_a_client_that_disconnects_during_the_authorization(node: AuthorizedNode) -> None:
    """Its authorization is cancelled, and nothing of it is left."""
    exchange = node.begin_poll("channel=a&timeout=20")
    assert exchange.held is not None
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 1
    assert not exchange.responses
    assert not exchange.answers
    assert node.is_quiet()
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 1


def test_a_client_that_disconnects_while_it_is_held(node: AuthorizedNode) -> None:
    """Nothing of it is left, and its completed authorization is not cancelled."""
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


def test_a_decision_while_the_node_drains(node: AuthorizedNode) -> None:
    exchange = node.begin_poll("channel=a&timeout=20")
    node.node.drain(0.0)
    node.application.allow()
    assert "ticket" in body_of(exchange)
    assert node.is_quiet()


def test_polls_awaiting_a_decision_are_limited_by_bytes() -> None:
    """Heads and names count; beyond the limit polls get 503 until decisions arrive or clients disconnect."""
    node = AuthorizedNode(limit_bytes=20_000)
    cookie = "x" * 5000
    asked = [node.begin_poll(f"channel={number}a&timeout=20", cookie=cookie) for number in range(3)]
    for _ in range(3):
        refused = node.begin_poll("channel=a", cookie=cookie)
        assert (refused.responses[0].status, dict(refused.responses[0].headers)[b"Retry-After"]) == (503, b"2")
    assert len(node.application.decisions) == 3
    node.application.allow(0)
    node.application.decisions[1].errback(Forbidden("no"))
    assert isinstance(asked[2].held, Deferred)
    node.api.abandon(asked[2].held)
    for number in range(3):
        assert isinstance(node.begin_poll(f"channel={number}b", cookie=cookie).held, Deferred)
    assert len(node.application.decisions) == 6


# Over connections.


@pytest.mark.parametrize("go", [Client.end, Client.reset])
def test_a_connection_that_ends_during_the_authorization(go: Callable[[Client], None]) -> None:
    connected = Connected()
    client = connected.poll()
    go(client)
    assert connected.node.application.cancelled == 1
    assert client.closed()
    assert connected.server.edge.connection_count == 0


def test_a_client_that_is_gone_when_its_second_poll_begins() -> None:
    """A poll of a client that has already disconnected is not authorized."""
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
    assert connected.node.application.cancelled == len(connected.node.application.decisions) == 1
    assert connected.node.is_quiet()


def test_a_pipeline() -> None:
    """Polls behind one that is being authorized wait for it, and are answered in order."""
    connected = Connected()
    node = connected.node
    client = connected.server.connect()
    client.send(
        poll_bytes("channel=a&timeout=0") + poll_bytes("channel=b&timeout=0") + poll_bytes("channel=c&timeout=0")
    )
    assert [channels for channels, _ in node.application.asked] == [("a",)]
    node.application.allow()
    connected.server.demultiplexer.run()
    node.application.refuse(Forbidden("no"))
    connected.server.demultiplexer.run()
    node.application.allow()
    assert [reply.status for reply in client.replies()] == [200, 403, 200]


def test_a_head() -> None:
    """A HEAD is authorized like a GET, and its response has no body."""
    connected = Connected()
    client = connected.server.connect()
    client.send(poll_bytes("channel=a&timeout=0", method="HEAD"))
    connected.node.application.allow()
    reply = client.reply(head=True)
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0


def test_the_ticket_of_a_connection() -> None:
    """The header field with the ticket is found in upper or lower case."""
    connected = Connected()
    for name in ("PushUp-Ticket", "pushup-ticket", "PUSHUP-TICKET"):
        client = connected.poll("channel=a&timeout=0", f"{name}: {connected.node.ticket('a')}")
        reply = client.reply()
        assert reply.status == 200
        assert "ticket" not in json.loads(reply.body)
    twice = f"PushUp-Ticket: {connected.node.ticket('a')}"
    connected.poll("channel=a&timeout=0", twice, twice)
    assert len(connected.node.application.asked) == 1


def test_many_authorizations_at_once() -> None:
    """Of 1,000 polls that await a decision some disconnect and the rest is allowed: each is answered or forgotten."""
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


# Event streams.


def test_a_stream_has_to_be_allowed(node: AuthorizedNode) -> None:
    """Nothing is sent before; then the client gets a ticket, and what there is."""
    node.publish("a", data=1)
    exchange = node.begin("GET", "/v1/events?channel=a", cookie="session=1")
    assert exchange.written == b""
    assert exchange.held is not None
    node.application.allow()
    ticket, message = events_of(exchange)
    assert (ticket.event, message.data["data"]) == ("ticket", 1)
    again = node.begin("GET", "/v1/events?channel=a", PushUp_Ticket=ticket.data["ticket"])
    assert [event.event for event in events_of(again)] == [""]
    assert len(node.application.asked) == 1


def test_a_stream_that_is_refused(node: AuthorizedNode) -> None:
    """It does not begin, and its client gets the problem."""
    exchange = node.begin("GET", "/v1/events?channel=a")
    node.application.refuse(Forbidden("not yours"))
    (response,) = exchange.responses
    assert response.status == 403
    assert node.streaming.count == 0


def test_a_client_of_a_stream_that_leaves_while_it_is_asked_about(node: AuthorizedNode) -> None:
    exchange = node.begin("GET", "/v1/events?channel=a")
    assert exchange.held is not None
    node.api.abandon(exchange.held)
    assert node.application.cancelled == 1
    assert exchange.responses == []


def test_a_stream_ends_with_its_ticket(node: AuthorizedNode) -> None:
    """Whatever comes after that is for those who are still allowed; the client asks again, with its cursor."""
    exchange = node.begin("GET", "/v1/events?channel=a")
    node.application.allow()
    node.publish("a", data=1)
    node.advance(SECONDS - 1)
    assert not read_chunks(exchange.written)[1]
    node.advance(2)
    node.publish("a", data=2)
    assert [event.data["data"] for event in events_of(exchange) if event.data and not event.event] == [1]
    assert read_chunks(exchange.written)[1]
    assert (node.streaming.count, node.polls.count) == (0, 0)


def test_a_stream_whose_ticket_has_expired_gets_nothing_more(node: AuthorizedNode) -> None:
    """Even if its clock is ahead, so that the deadline on the other clock has not come."""
    exchange = node.begin("GET", "/v1/events?channel=a")
    node.application.allow()
    before = len(events_of(exchange))
    node.wall_ahead = SECONDS + 1
    node.publish("a", data=1)
    assert read_chunks(exchange.written)[1]
    (last,) = events_of(exchange)[before:]
    assert (last.event, last.data["type"]) == ("error", "urn:pushup:ticket-expired")


@pytest.mark.parametrize("call", ["poll", "events"])
def test_the_application_is_shown_a_token_in_the_body(node: AuthorizedNode, call: str) -> None:
    """As if it had come in a header field; the ticket follows as always."""
    body = {"channels": ["a"], "token": "of.the-application"}
    exchange = node.begin("POST", f"/v1/{call}", body, cookie="a=b")
    ((_, headers),) = node.application.asked
    assert (headers[b"authorization"], headers[b"cookie"]) == (b"Bearer of.the-application", b"a=b")
    node.application.allow()
    assert exchange.held is not None


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "caf\u00e9", "x" * (APPLICATION_TOKEN_LIMIT + 1)])
def test_a_token_that_no_header_field_can_have(node: AuthorizedNode, token: str) -> None:
    """Nothing of it reaches the application."""
    result = node.call("POST", "/v1/poll", {"channels": ["a"], "token": token})
    assert (result.status, result.json["field"]) == (400, "token")
    both = node.call("POST", "/v1/poll", {"channels": ["a"], "token": "x"}, authorization="Bearer y")
    assert both.status == 400
    assert node.application.asked == []
