"""URL tickets, as somebody who has found one in a log, or wants more than its token says."""

from __future__ import annotations

import json
import re
from gc import collect, get_objects, get_referents
from types import ModuleType
from typing import Any, Literal

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from pushup.backends.service_requestor import Reply
from pushup.backends.tickets import Tickets
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.poll_access import BEFORE_END_SECONDS
from pushup.net.api.quotas import QuotaSettings, QuotaTable
from pushup.net.api.request_log import RequestLog
from pushup.net.edge_limits import RequestLimits
from pushup.net.requests_and_responses import Request
from pushup.tokens.claims import Expected
from pushup.tokens.key_urls import KeyUrl
from pushup.tokens.verifier import Issuer, Verifier
from tests.net.event_reader import data_of, read_chunks, read_events, read_raw
from tests.net.in_memory_node import CallResult, InMemoryNode, RecordingExchange, events_of
from tests.net.in_memory_server import InMemoryServer
from tests.net.observed_log import logged_at
from tests.tokens.evil_tokens import ISSUER, NOW, issuer, jwk, jwks, key, token

LEEWAY = 10
KEY = "a-key-of-sixteen-characters"
COOKIE = "__Secure-pushup"
PAGE = "https://app.example"
OWN = "https://push.example"
HOST = "push.example"
TOKEN = token(jti="one", pushup={"poll": ["user:7", "news", "+ &=é", "private"], "publish": ["*"]})
RULES = ChannelRules("token")


class Pages(InMemoryNode):
    """A node that issues URL tickets, and the pages that use them."""

    def __init__(self, *, is_on: bool = True, rules: ChannelRules = RULES, **others: Any) -> None:
        super().__init__(
            tokens=Verifier([issuer(key("HS256"))], lambda: self.clock.seconds()),
            rules=rules,
            publish_keys=(f"all {KEY} publish channels operate read",),
            token_cookie=COOKIE,
            cors_origins=(PAGE,),
            **others,
        )
        self.tickets = Tickets(b"the key of all nodes")
        if is_on:
            self.streaming.poll_access.url_tickets = self.tickets

    def issue(
        self, *channels: str, text: str = TOKEN, origin: str = PAGE, body: Any = None, **headers: str
    ) -> CallResult:
        """Ask for a ticket; with `body`, with that and without Authorization."""
        fields = {"Host": HOST} | ({"Origin": origin} if origin else {}) | headers
        if body is None:
            body, fields["Authorization"] = {"channels": channels}, f"Bearer {text}"
        return self.call("POST", "/v1/url-tickets", body, **fields)

    def ticket(self, *channels: str, **others: Any) -> str:
        result = self.issue(*channels, **others)
        assert result.status == 200, result
        return str(result.json["ticket"])

    def stream(self, query: str, origin: str = PAGE, method: str = "GET", **headers: str) -> RecordingExchange:
        """Open a stream as the browser does: `origin` is empty for pages of the same one."""
        fields = {"Host": HOST} | ({"Origin": origin} if origin else {}) | headers
        return self.begin(method, f"/v1/events?{query}", **fields)

    def say(self, *channels: str, data: Any = None) -> None:
        self.publish(*channels, data=data, Authorization=f"Bearer {KEY}")

    def revoke(self, **body: Any) -> None:
        assert self.call("POST", "/v1/revoke", body, Authorization=f"Bearer {KEY}").status == 200
        self.run()

    def is_following(self, exchange: RecordingExchange) -> bool:
        """Whether this is an open stream that gets what is published for user 7."""
        if status(exchange) != 200 or exchange.held is None:
            return False
        self.say("user:7", data="private")
        return b'"private"' in exchange.written


@pytest.fixture
def node() -> Pages:
    return Pages()


def status(exchange: RecordingExchange) -> int:
    (response,) = exchange.responses
    return response.status


def refusal(exchange: RecordingExchange) -> tuple[int, str]:
    """The status, and the kind of problem."""
    (response,) = exchange.responses
    return response.status, json.loads(response.body)["type"].removeprefix("urn:pushup:")


# What it is for.


@pytest.mark.parametrize(("origin", "host"), [(PAGE, HOST), ("", HOST), ("", "PUSH.example"), ("", "push.example")])
def test_a_stream_of_a_page(node: Pages, origin: str, host: str) -> None:
    """Of another origin, or of the same one, for which the browser sends no Origin."""
    text = node.ticket("user:7", origin=origin or OWN)
    assert node.is_following(node.stream(f"channel=user:7&ticket={text}", origin, Host=host))


def test_what_is_issued(node: Pages) -> None:
    """A ticket that a query string takes as it is, and its seconds; neither may be cached."""
    result = node.issue("user:7", "news")
    assert result.json.keys() == {"ticket", "expires_in"}
    assert result.json["expires_in"] == 300 + LEEWAY
    assert re.fullmatch(r"[A-Za-z0-9._=-]+", result.json["ticket"])
    assert TOKEN not in result.body.decode()


def test_ways_to_send_the_token(node: Pages) -> None:
    """In the head, in the body, or in a cookie, from pages that may use that."""
    assert node.issue(body={"channels": ["user:7"], "token": TOKEN}).status == 200
    cookie = f"{COOKIE}={TOKEN}"
    assert node.issue(body={"channels": ["user:7"]}, Cookie=cookie).status == 200
    assert node.issue(body={"channels": ["user:7"]}, Cookie=cookie, origin="https://evil.example").status == 403
    both = {"Authorization": f"Bearer {TOKEN}"}
    assert node.issue(body={"channels": ["user:7"], "token": TOKEN}, **both).status == 400


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"channels": ["user:7"], "text": ""}, 401),
        ({"channels": ["user:7"], "text": TOKEN[:-1]}, 401),
        ({"channels": ["user:7"], "text": token(exp=NOW - LEEWAY)}, 401),
        ({"channels": ["user:7"], "text": KEY}, 401),
        ({"channels": ["user:8"]}, 403),
        ({"channels": ["user:7", "user:8"]}, 403),
        ({"channels": ["user:7"], "text": token(pushup={"publish": ["user:7"]})}, 403),
        ({"channels": ["user:7"], "origin": ""}, 400),
        ({"channels": ["user:7"], "origin": "null"}, 400),
        ({"channels": []}, 400),
        ({"channels": ["a,b"]}, 400),
        ({"channels": ["user:7"] * 101}, 400),
    ],
)
def test_who_gets_none(node: Pages, asked: dict[str, Any], status: int) -> None:
    """A token must allow polling each of the channels, also where everybody may; a key stands for nobody."""
    for rules in (RULES, ChannelRules("anyone")):
        others = Pages(rules=rules)
        given = {"text": TOKEN, "origin": PAGE, **asked}
        text, channels = given.pop("text"), given.pop("channels")
        assert others.issue(*channels, text=text, **given).status == status
    node.revoke(jti="one")
    assert node.issue("user:7").status == 401


def test_none_for_an_id(node: Pages) -> None:
    """Rights are for names: a token for a number is none for the channel with this id."""

    def create(name: str) -> str:
        return str(node.call("POST", "/v1/channels", {"name": name}, Authorization=f"Bearer {KEY}").json["id"])

    created = create("user:8")
    numbers = token(pushup={"poll": ["*"]})
    assert node.issue(created, text=numbers).status == 404
    unknown = str(int(created) + 1)
    query = f"channel={unknown}&ticket={node.ticket(unknown, text=numbers)}"
    assert status(node.stream(query)) == 404
    assert node.call("POST", "/v1/channels", {"name": "user:9"}, Authorization=f"Bearer {KEY}").json["id"] == int(
        unknown
    )
    assert status(node.stream(query)) == 404


def test_off() -> None:
    """Unless the setting is on, none is issued, and the parameter is an unknown one."""
    node, other = Pages(is_on=False), Pages()
    result = node.issue("user:7")
    assert result.status == 404
    assert "token_url_tickets" in result.json["detail"]
    for text in (other.ticket("user:7"), ""):
        exchange = node.stream(f"channel=user:7&ticket={text}", Cookie=f"{COOKIE}={TOKEN}")
        assert refusal(exchange) == (400, "bad-request")


def rated(per: Literal["subject", "address"]) -> QuotaSettings:
    """Six requests at once: those of 5 s, and one that begins a debt."""
    return QuotaSettings(quotas=(QuotaTable(per=per, requests_per_second=1.0),))


def test_asking_for_a_ticket_counts_for_the_user() -> None:
    """As a poll on the same token does."""
    node = Pages(quotas=rated("subject"))
    assert [node.issue("user:7").status for _ in range(7)] == [200] * 6 + [429]
    assert node.issue("user:7", text=token(sub="8")).status == 200


@pytest.mark.parametrize(("end", "wanted"), [("", 204), ("x", 401)])
def test_a_ticket_that_is_not_accepted_counts_for_the_address(end: str, wanted: int) -> None:
    """Whether it was revoked, or is none."""
    node = Pages(quotas=rated("address"))
    query = f"channel=user:7&ticket={node.ticket('user:7')}{end}"
    node.revoke(sub="7")
    assert [status(node.stream(query)) for _ in range(7)] == [wanted] * 6 + [429]


# What it is not for.


@pytest.mark.parametrize(
    ("issued_for", "headers"),
    [
        (PAGE, {"Origin": "https://evil.example"}),
        (PAGE, {"Origin": "https://app.example:8443"}),
        (PAGE, {"Origin": "http://app.example"}),
        (PAGE, {"Origin": PAGE.upper()}),
        (PAGE, {"Origin": f"{PAGE}, {PAGE}"}),
        (PAGE, {"Origin": "null"}),
        (PAGE, {"Origin": ""}),
        (PAGE, {}),
        (OWN, {"Host": "evil.example"}),
        (OWN, {"Host": ""}),
        (OWN, {"Host": "push.example:8443"}),
        (OWN, {"Host": HOST, "Origin": PAGE}),
        (OWN, {"Host": HOST, "Origin": ""}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_another_origin(node: Pages, issued_for: str, headers: dict[str, str], method: str) -> None:
    """Neither a page of another origin nor another host can use it, nor whoever follows a link from elsewhere."""
    text = node.ticket("user:7", origin=issued_for)
    exchange = node.stream(f"channel=user:7&ticket={text}", "", method, **headers)
    assert refusal(exchange) == (401, "invalid-token")
    assert node.polls.count == 0


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("channel=user:7&channel=news", 200),
        ("channel=news&channel=user:7", 200),
        ("channel=news&channel=user:7&channel=news", 200),
        ("channel=news&channel=user%3A7&_=1", 200),
        ("channel=user:7", 401),
        ("channel=news", 401),
        ("channel=user:7&channel=news&channel=private", 401),
        ("channel=private", 401),
        ("channel=user:7%0Anews", 400),
    ],
)
def test_other_channels(node: Pages, query: str, wanted: int) -> None:
    """It is for all of its channels, in any order, and for no others: neither fewer nor more."""
    text = node.ticket("user:7", "news")
    assert status(node.stream(f"{query}&ticket={text}")) == wanted
    assert status(node.stream(f"ticket={text}&{query}")) == wanted


def encoded(text: str) -> str:
    """Percent-encoded as a whole."""
    return "".join(f"%{ord(letter):02X}" for letter in text)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("ticket=TICKET", 200),
        ("cursor=now&ticket=TICKET&from=", 200),
        ("&&ticket=TICKET&&", 200),
        ("ticket=ENCODED", 200),
        ("ticket=TICKET&ticket=TICKET", 400),
        ("ticket=&ticket=TICKET", 400),
        ("ticket=TICKET&ticket=", 400),
        ("ticket=TICKET&ticket", 400),
        ("%74icket=TICKET", 400),
        ("ticket%3DTICKET", 400),
        ("Ticket=TICKET", 400),
        ("ticket=TICKET&%74icket=TICKET", 400),
        ("ticket=", 401),
        ("ticket=TICKET%0A", 401),
        ("ticket=+TICKET", 401),
        ("ticket=TICKET;x", 401),
        ("ticket=TICKET#x", 401),
        ("ticket=%FF%00", 401),
        ("ticket", 400),
        ("channels=news&ticket=TICKET", 400),
        ("timeout=1&ticket=TICKET", 400),
    ],
)
def test_ways_to_write_it(node: Pages, query: str, wanted: int) -> None:
    """Once, by its plain name. Whatever else names a ticket is refused, not taken for a request without one."""
    text = node.ticket("user:7")
    query = query.replace("TICKET", text).replace("ENCODED", encoded(text))
    everybody = Pages(rules=ChannelRules("anyone"))
    for each in (node, everybody):
        cookie = {"Cookie": f"{COOKIE}={TOKEN}"}
        for headers in ({}, cookie):
            exchange = each.stream(f"channel=user:7&{query}", **headers)
            assert status(exchange) == wanted
            assert text[-20:].encode() not in exchange.responses[0].body


def test_where_it_is_not_taken(node: Pages) -> None:
    """A poll can send header fields; a body has no ticket, and a POST's query string no meaning."""
    text = node.ticket("user:7")
    fields = {"Origin": PAGE, "Host": HOST}
    exchanges = [
        node.begin("GET", f"/v1/poll?channel=user:7&ticket={text}", **fields),
        node.begin("POST", "/v1/events", {"channels": ["user:7"], "ticket": text}, **fields),
        node.begin("POST", "/v1/poll", {"channels": ["user:7"], "ticket": text}, **fields),
        node.begin("POST", f"/v1/events?ticket={text}", {"channels": ["user:7"]}, **fields),
        node.begin("GET", "/v1/events?channel=user:7", PushUp_Ticket=text, **fields),
        node.begin("GET", "/v1/events?channel=user:7", Authorization=f"Bearer {text}", **fields),
        node.begin("GET", "/v1/events?channel=user:7", Cookie=f"{COOKIE}={text}", **fields),
    ]
    assert [status(exchange) for exchange in exchanges] == [400, 400, 400, 401, 401, 401, 401]
    cookie = {"Cookie": f"{COOKIE}={TOKEN}"}
    for target in (f"/v1/poll?ticket={text}", f"/v1/events?ticket={text}"):
        exchange = node.begin("POST", target, {"channels": ["user:7"]}, **cookie, **fields)
        assert exchange.held is not None  # on the cookie's token


def test_a_token_beside_it(node: Pages) -> None:
    """A bad one is refused, and a good one as well: it would be open which counts. A cookie does not count."""
    query = f"channel=user:7&ticket={node.ticket('user:7')}"
    assert refusal(node.stream(query, Authorization=f"Bearer {TOKEN[:-1]}")) == (401, "invalid-token")
    for text in (TOKEN, KEY):
        assert refusal(node.stream(query, Authorization=f"Bearer {text}")) == (400, "bad-request")
    for headers in ({"Authorization": "Basic eDp5"}, {"Cookie": f"{COOKIE}={TOKEN[:-1]}"}):
        assert node.is_following(node.stream(query, **headers))
    bad = query.replace("ticket=1", "ticket=2")
    assert refusal(node.stream(bad, Cookie=f"{COOKIE}={TOKEN}")) == (401, "invalid-token")


def test_the_two_kinds_of_tickets(node: Pages) -> None:
    """Neither is valid as the other, for any origin that a request may have."""
    times = {"issued_at": NOW, "expires": NOW + 100}
    ticket = node.tickets.seal(("user:7",), subject="7", **times)
    parts = ticket.split(".")
    for text in (ticket, ".".join((*parts[:3], "", parts[3]))):
        for origin in (PAGE, "", "\n"):
            assert node.tickets.open_of_url(text, ("user:7",), origin) is None
        assert refusal(node.stream(f"channel=user:7&ticket={text}", Origin="")) == (401, "invalid-token")
    for_url = node.ticket("user:7").split(".")
    for text in (".".join(for_url), ".".join((*for_url[:3], for_url[4]))):
        assert node.tickets.open(text, ("user:7",)) is None


# How it ends.


def test_it_ends_with_the_token(node: Pages) -> None:
    """An open stream says so, as on the token. A browser that connects again gets 204, and gives up."""
    result = node.issue("user:7")
    query = f"channel=user:7&cursor=now&ticket={result.json['ticket']}"
    opened = node.stream(query)
    node.advance(result.json["expires_in"] - BEFORE_END_SECONDS - 0.25)
    assert node.is_following(opened)
    assert status(node.stream(query)) == 200
    node.advance(BEFORE_END_SECONDS + 0.25)
    content, is_complete = read_chunks(opened.written)
    last = read_events(content)[-1]
    assert (last.event, last.data["type"], is_complete) == ("error", "urn:pushup:token-expired", True)
    for method in ("GET", "HEAD"):
        (response,) = node.stream(query, method=method).responses
        assert (response.status, response.body) == (204, b"")
    assert node.streaming.count == 0


@pytest.mark.parametrize("name", [{"sub": "7"}, {"jti": "one"}])
def test_it_is_revoked_with_the_token(node: Pages, name: dict[str, str]) -> None:
    """By the user as well as by the token's own name; an open stream ends, and gets nothing more."""
    query = f"channel=user:7&cursor=now&ticket={node.ticket('user:7')}"
    opened = node.stream(query)
    node.clock.advance(2)
    node.revoke(**name)
    node.say("user:7", data="later")
    assert b"urn:pushup:revoked" in opened.written
    assert b"later" not in opened.written
    assert status(node.stream(query)) == 204


def test_a_token_that_was_revoked_before(node: Pages) -> None:
    """The ticket was issued when the token was, not when it was exchanged."""
    first = node.ticket("user:7")
    node.revoke(sub="7", issued_before=NOW - 30)
    second = node.ticket("user:7", text=token(iat=NOW - 20))
    assert status(node.stream(f"channel=user:7&ticket={first}")) == 204
    assert node.is_following(node.stream(f"channel=user:7&ticket={second}"))


def test_an_order_that_begins_anew(node: Pages) -> None:
    """It does not know what was revoked before, so what was issued before is refused."""
    query = f"channel=user:7&ticket={node.ticket('user:7')}"
    opened = node.stream(query)
    node.node.start_from(ReplicatedState(Limits(), epoch=f"{(NOW + 1) * 1000:x}abcd00", time=float(NOW + 1)))
    node.run()
    assert b"urn:pushup:revoked" in opened.written
    assert status(node.stream(query)) == 204


def test_another_key_of_tickets(node: Pages) -> None:
    """Those sealed with the key of before are not valid, and what is open on them ends; without a key, none is."""
    query = f"channel=user:7&ticket={node.ticket('user:7')}"
    opened, access = node.stream(query), node.streaming.poll_access
    access.end_withdrawn()
    assert node.is_following(opened)
    access.url_tickets = Tickets(b"another key of all nodes")
    access.end_withdrawn()
    assert opened.held is None
    assert refusal(node.stream(query)) == (401, "invalid-token")
    access.url_tickets = None
    assert refusal(node.stream(query)) == (400, "bad-request")


def test_the_key_of_the_token_is_withdrawn(node: Pages) -> None:
    """Whoever had it could have signed the token. So the ticket ends as well; one on another key stays."""
    both = Verifier([issuer(key("HS256"), key("HS256", 1))], lambda: node.clock.seconds())
    node.access.use_tokens(both, COOKIE)
    queries = [f"channel=user:7&ticket={node.ticket('user:7', text=token(number=number))}" for number in (0, 1)]
    opened = [node.stream(query) for query in queries]
    node.access.use_tokens(Verifier([issuer(key("HS256", 1))], lambda: node.clock.seconds()), COOKIE)
    node.streaming.poll_access.end_withdrawn()
    assert [stream.held is not None for stream in opened] == [False, True]
    assert b"urn:pushup:invalid-token" in opened[0].written
    assert [status(node.stream(query)) for query in queries] == [204, 200]


def test_the_key_of_the_token_is_not_fetched_yet(node: Pages) -> None:
    """After a restart. The ticket may be good, so its page is not told to give up; one that was revoked is not."""
    requests: list[Deferred[Reply]] = [Deferred(), Deferred()]
    url = KeyUrl("https://app.example/jwks", lambda _: requests.pop(0), Clock())
    by_url = Issuer(ISSUER, Expected(audience="pushup"), key_url=url)
    node.access.use_tokens(Verifier([by_url], lambda: node.clock.seconds()), COOKIE)
    url.keys = (key("ES256"),)
    query = f"channel=user:7&ticket={node.ticket('user:7', text=token('ES256'))}"
    url.keys, fetching = (), requests[0]
    assert [refusal(node.stream(query)) for _ in range(2)] == [(503, "unavailable")] * 2
    fetching.callback(Reply(200, jwks(jwk("ES256"))))
    assert status(node.stream(query)) == 200
    url.keys = (key("ES256", 1),)
    assert status(node.stream(query)) == 204
    url.keys = ()
    node.revoke(sub="7")
    assert status(node.stream(query)) == 204
    assert len(requests) == 1
    url.stop()


def test_a_withdrawn_key_beside_keys_that_are_never_fetched(node: Pages) -> None:
    """It is known to be withdrawn, so its page is told to give up, whatever the URL of another issuer may answer."""
    published = [(jwk("ES256"), jwk("ES256", 1)), (jwk("ES256", 1),)]
    url = KeyUrl("https://app.example/jwks", lambda _: succeed(Reply(200, jwks(*published.pop(0)))), Clock())
    silent = KeyUrl("https://other.example/jwks", lambda _: Deferred(), Clock())
    names = {"https://other.example": silent, ISSUER: url}
    issuers = [Issuer(name, Expected(audience="pushup"), key_url=each) for name, each in names.items()]
    verifier = Verifier(issuers, lambda: node.clock.seconds())
    url.on_change = verifier.forget
    node.access.use_tokens(verifier, COOKIE)
    url.fetch()
    tickets = [node.ticket("user:7", text=token("ES256", number)) for number in (0, 1)]
    url.fetch()
    assert [status(node.stream(f"channel=user:7&ticket={ticket}")) for ticket in tickets] == [204, 200]


def test_it_continues_at_a_cursor(node: Pages) -> None:
    """As each stream, by `cursor`, or by the header field of a browser that connects again."""
    node.say("user:7", data=1)
    cursor = node.call("GET", "/v1/cursor").json["cursor"]
    node.say("user:7", data=2)
    query = f"channel=user:7&ticket={node.ticket('user:7')}"
    for exchange in (node.stream(f"{query}&cursor={cursor}"), node.stream(query, Last_Event_ID=cursor)):
        assert data_of(events_of(exchange)) == [2]


# Where it leaves traces.


def remembered(*texts: str) -> list[object]:
    """What the process still has that contains one of these texts, but for the texts themselves.

    By the types of objects: asked for their class, lazy ones of other tests would begin to work.
    """
    collect()
    found: dict[int, object] = {}
    for container in get_objects():
        if issubclass(type(container), ModuleType):
            continue  # its dict is another; and CPython before 3.12.6 breaks if _asyncio is asked (its issue 122695)
        for value in get_referents(container):
            data = value.encode(errors="replace") if issubclass(type(value), str) else value
            if issubclass(type(data), bytes | bytearray) and any(text.encode() in data for text in texts):
                found[id(value)] = value
    return [value for value in found.values() if not any(value is text for text in texts)]


class Served:
    """The node behind an edge that logs each request, and one client."""

    def __init__(self) -> None:
        self.node = Pages()
        self.server = InMemoryServer(
            RequestLog(self.node.api, self.node.clock),
            clock=self.node.clock,
            request_limits=RequestLimits(target_limit_bytes=2000),
        )
        self.client = self.server.connect()

    def ask(self, query: str, *fields: str, path: str = "/v1/events", pieces: int = 1) -> bytes:
        """Send a request, in so many pieces; returns what comes back."""
        data = "\r\n".join((f"GET {path}?{query} HTTP/1.1", f"Host: {HOST}", *fields, "", "")).encode("latin-1")
        size = -(-len(data) // pieces)
        for begin in range(0, len(data), size):
            self.client.send(data[begin : begin + size])
        self.node.run()
        return self.client.take()

    def leave(self) -> None:
        self.client.reset()
        self.client = self.server.connect()
        self.client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("field", [f"Origin: {PAGE}", f"Origin: {PAGE}\r\nConnection: upgrade\r\nUpgrade: h2c"])
def test_an_open_stream_keeps_no_ticket(pieces: int, field: str) -> None:
    """Neither the log nor anything in memory has it, while the stream is open and afterwards."""
    served = Served()
    text = served.node.ticket("user:7")
    seal = text.rpartition(".")[2]
    del text
    with logged_at("debug") as lines:
        for _ in range(2):  # the second is known by what is remembered of the first
            query = f"channel=user:7&ticket={served.node.ticket('user:7')}&_=1"
            assert b"200 OK" in served.ask(query, field, pieces=pieces)
            del query
            assert served.node.streaming.count == 1
            assert remembered(seal) == []
            served.leave()
    assert remembered(seal) == []
    assert "GET /v1/events?channel=user:7&_=1 200 " in lines[0]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("channel=user:7&ticket=TICKET", 401),
        ("channel=user:7&ticket=TICKET&ticket=TICKET", 400),
        ("channel=user:7&tick%65t=TICKET", 400),
        ("channel=user:7&ticket=TICKET\xe9", 400),
        ("channel=user:7&ticket=TICKET%FF", 401),
        ("channel=user:7&channel=%FF&ticket=TICKET", 400),
        pytest.param(f"channel=user:7&ticket=TICKET{'x' * 3000}", 414, id="long"),
        ("channel=user:7&ticket=TICKET\x01", 400),
    ],
)
@pytest.mark.parametrize("path", ["/v1/events", "/v1/poll", "http://push.example/v1/events", "/v1/nothing"])
def test_a_refused_request_leaves_no_ticket(query: str, status: int, path: str) -> None:
    """Neither its response, nor the log, nor anything in memory has it."""
    served = Served()
    seal = served.node.ticket("user:7").rpartition(".")[2]
    with logged_at("debug") as lines, logged_at("info") as others:
        reply = served.ask(query.replace("TICKET", served.node.ticket("user:7")), path=path, pieces=3)
    if path.endswith("/v1/events"):
        assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert seal.encode() not in reply
    assert not [line for line in (*lines, *others) if seal in line]
    del reply, lines, others
    served.leave()
    assert remembered(seal) == []


def test_the_rest_of_the_target_stays() -> None:
    """Only this parameter is taken out, and only from streams: other paths, names and values are as they were sent."""
    for target, left, ticket in (
        ("/v1/events?ticket=t", "/v1/events?", b"t"),
        ("/v1/events?a=1&ticket=t&b=2", "/v1/events?a=1&b=2", b"t"),
        ("/v1/events?a=1&b=ticket=t", None, None),
        ("/v1/events?a=1&pticket=t", None, None),
        ("/v1/events?a=ticket=&ticket=", "/v1/events?a=ticket=", b""),
        ("/v1/events?&&ticket=t&&", "/v1/events?&&&", b"t"),
        ("/v1/poll?ticket=t", None, None),
        ("/v1/channels/a&ticket=t", None, None),
        ("/v1/channels/ticket=?ticket=t", None, None),
        ("/v1/events&ticket=t", None, None),
    ):
        request = Request(b"GET", target.encode(), {}, keep_alive=True)
        assert (request.target.decode(), request.url_ticket) == (left or target, ticket), target
        other = Request(b"POST", target.encode(), {}, keep_alive=True)
        assert (other.target.decode(), other.url_ticket) == (target, None)


def test_it_counts_against_the_budget() -> None:
    """A request that waits is counted with its ticket."""
    with_ticket, without = (
        Request(b"GET", b"/v1/events?" + query, {}, True) for query in (b"ticket=" + b"x" * 500, b"")
    )
    assert with_ticket.size - without.size == 500


def test_raw_events() -> None:
    """The format is a parameter beside the ticket, in either order."""
    pages = Pages()
    ticket = pages.ticket("news")
    for query in (f"format=raw&channel=news&ticket={ticket}", f"ticket={ticket}&channel=news&format=raw"):
        stream = pages.stream(query)
        pages.say("news", data="<li>x</li>")
        assert read_raw(read_chunks(stream.written)[0])[-1].data == "<li>x</li>"
