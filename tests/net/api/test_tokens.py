"""Tokens at the HTTP interface, as somebody who wants more than the token says, or longer than it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pushup.net.api.channel_rules import ChannelRule, ChannelRules
from pushup.net.api.poll_access import BEFORE_END_SECONDS
from pushup.net.api.polling import ENDS_SOON_SECONDS
from pushup.net.api.request_log import RequestLog
from pushup.net.requests_and_responses import Request
from pushup.tokens.verifier import Verifier
from tests.net.event_reader import cursor_of, data_of
from tests.net.in_memory_node import InMemoryNode, RecordingExchange, take
from tests.net.observed_log import logged_at
from tests.tokens.evil_tokens import NOW, OTHER_SECRET, claims, issuer, key, token, write

LEEWAY = 10.0
KEY = "a-key-of-sixteen-characters"
WITH_KEY = {"Authorization": f"Bearer {KEY}"}
COOKIE = "__Secure-pushup"
ORIGIN = "https://app.example"
RULES = ChannelRules(
    "token",
    [ChannelRule("open:", "anyone"), ChannelRule("staff:", "token", "key"), ChannelRule("open:staff:", "token")],
)


class TokenNode(InMemoryNode):
    """A node that accepts tokens, and has a publish key."""

    def __init__(self, *, rules: ChannelRules = RULES, keys: tuple[str, ...] = (KEY,), **others: Any) -> None:
        verifier = Verifier([issuer(key("HS256"))], lambda: self.clock.seconds())
        super().__init__(
            tokens=verifier,
            rules=rules,
            publish_keys=keys,
            token_cookie=COOKIE,
            **{"cors_origins": (ORIGIN,), **others},
        )

    def send(
        self, call: str, channels: list[str], text: str = "", way: str = "bearer", **headers: str
    ) -> RecordingExchange:
        """Begin a call (`poll`, `events` or `messages`) with a token that is sent in this way."""
        if text and way == "bearer":
            headers["Authorization"] = f"Bearer {text}"
        elif text and way == "cookie":
            headers["Cookie"] = f"a=b; {COOKIE}={text}; c=d"
        body: dict[str, Any] = {"channels": channels}
        if text and way == "body":
            body["token"] = text
        if call == "messages":
            body["data"] = 1
        elif call == "poll":
            body["timeout"] = 20
        elif way != "body":  # as an EventSource does
            return self.begin("GET", f"/v1/{call}?" + "&".join(f"channel={name}" for name in channels), **headers)
        return self.begin("POST", f"/v1/{call}", body, **headers)

    def make(self, name: str) -> str:
        """Create a channel; returns its id."""
        return str(self.call("POST", "/v1/channels", {"name": name}, **WITH_KEY).json["id"])

    def say(self, *channels: str, data: Any = None) -> None:
        """Publish with the key, and deliver."""
        self.publish(*channels, data=data, **WITH_KEY)

    def until(self, seconds: float) -> None:
        """Go on until this time."""
        self.advance(seconds - self.clock.seconds())


@pytest.fixture
def node() -> TokenNode:
    return TokenNode()


def status(exchange: RecordingExchange) -> int:
    """The status of the response; 0 if the poll is held, 200 of an open stream, or an answer."""
    if exchange.answers:
        return 200
    return exchange.responses[0].status if exchange.responses else 0


def problem(exchange: RecordingExchange) -> dict[str, Any]:
    (response,) = exchange.responses
    found: dict[str, Any] = json.loads(response.body)
    return found


def code(exchange: RecordingExchange) -> str:
    return str(problem(exchange)["type"]).removeprefix("urn:pushup:")


def answer(exchange: RecordingExchange) -> dict[str, Any]:
    """What the poll was answered."""
    if exchange.answers:
        (given,) = exchange.answers
        return {"messages": given.messages, "cursor": given.cursor}
    assert status(exchange) == 200
    return problem(exchange)


WAYS = [
    ("poll", "bearer"), ("poll", "body"), ("poll", "cookie"), ("events", "bearer"), ("events", "body"),
    ("events", "cookie"), ("messages", "bearer"), ("messages", "cookie"),
]  # fmt: skip
"""Calls, and how a token may be sent with them."""

MAY = {"poll": ["user:7"], "publish": ["user:7"]}


@pytest.mark.parametrize(("call", "way"), WAYS)
def test_what_a_token_allows(node: TokenNode, call: str, way: str) -> None:
    """Its channels and no others, alone or together with them; the channels of nobody need no token."""
    good = token(pushup=MAY)
    assert status(node.send(call, ["user:7"], good, way)) == {"poll": 0, "events": 200, "messages": 201}[call]
    before = node.state.cursor
    for channels in (["user:8"], ["user:7", "user:8"], ["user:70"], ["user:"], ["user"], ["User:7"], ["user:7\u200b"]):
        if not (call == "events" and "\u200b" in channels[0]):  # begin() writes Latin-1
            assert status(node.send(call, channels, good, way)) == 403
    assert status(node.send(call, ["user:7"], "", way)) == 401
    assert node.state.cursor == before


def evil_tokens() -> dict[str, str]:
    good = token(pushup=MAY)
    return {
        "cut": good[:-1],
        "signature of another": good.rpartition(".")[0] + "." + token(sub="8").rpartition(".")[2],
        "none": write({"alg": "none"}, claims(pushup=MAY), b"").rpartition(".")[0] + ".",
        "expired": token(exp=NOW - LEEWAY, pushup=MAY),
        "early": token(iat=NOW + LEEWAY + 1, pushup=MAY),
        "for another": token(aud="other", pushup=MAY),
        "by another": token(iss="https://evil.example", pushup=MAY),
        "malformed rights": token(pushup={"poll": ["user:7", "*:7"]}),
        "long": token(pushup=MAY, pad="x" * 5000),
    }


@pytest.mark.parametrize("kind", evil_tokens())
@pytest.mark.parametrize(("call", "way"), WAYS)
@pytest.mark.parametrize("keys", [(), (KEY,), (f"reader {KEY} read",)])
def test_a_bad_token_is_never_anonymous(kind: str, call: str, way: str, keys: tuple[str, ...]) -> None:
    """Also on channels that everybody may use; the answer says that the token is at fault, and shows none of it."""
    evil = evil_tokens()[kind]
    for rules in (RULES, ChannelRules()):
        node = TokenNode(rules=rules, keys=keys)
        for channel in ("open:a", "user:7"):
            exchange = node.send(call, [channel], evil, way)
            assert status(exchange) == 401
            assert code(exchange) == ("token-expired" if kind == "expired" else "invalid-token")
            response = exchange.responses[0]
            assert dict(response.headers)[b"WWW-Authenticate"].endswith(b', error="invalid_token"')
            assert not [part for part in evil.encode().split(b".") if part and part in response.body]
            assert node.polls.count == 0
        assert node.state.message_count == 0


def test_head_and_body_do_not_disagree(node: TokenNode) -> None:
    """A request has a token, or a key, in one of the two; what a proxy sends for itself beside it does no harm."""
    good, other = token(), token(sub="8", pushup={"poll": ["user:8"]})
    for head in (f"Bearer {good}", f"Bearer {other}", f"Bearer {KEY}", f"bearer {good}"):
        for call in ("poll", "events"):
            exchange = node.begin("POST", f"/v1/{call}", {"channels": ["user:7"], "token": good}, Authorization=head)
            assert (status(exchange), problem(exchange)["field"]) == (400, "token")
    exchange = node.begin("POST", "/v1/poll", {"channels": ["user:7"], "token": good}, Authorization="Bearer x")
    assert code(exchange) == "invalid-token"
    for head in ("Basic eDp5", "", "Bearer"):
        exchange = node.begin("POST", "/v1/poll", {"channels": ["user:7"], "token": good}, Authorization=head)
        assert status(exchange) == 0


def test_head_and_cookie_do_not_add_up(node: TokenNode) -> None:
    """The head decides, then the body, and no request has the rights of two. A bad one is not made good by another."""
    mine, other = token(), token(sub="8", pushup={"poll": ["user:8"]})
    cookie = {"Cookie": f"{COOKIE}={other}"}
    for way in ("bearer", "body"):
        found = [status(node.send("poll", channels, mine, way, **cookie)) for channels in (["user:7"], ["user:8"])]
        assert found == [0, 403]
        assert status(node.send("poll", ["user:7", "user:8"], mine, way, **cookie)) == 403
    assert code(node.send("poll", ["user:8"], mine[:-1], **cookie)) == "invalid-token"
    assert code(node.send("poll", ["user:8"], mine[:-1], "body", **cookie)) == "invalid-token"


@pytest.mark.parametrize("call", ["poll", "events"])
def test_a_cookie_that_has_expired_beside_a_token(node: TokenNode, call: str) -> None:
    """The browser sends it along; the token of the page counts. Without one, the cookie is refused as ever."""
    old = {"Cookie": f"{COOKIE}={token(exp=NOW - 30)}"}
    assert status(node.send(call, ["user:7"], token(), "body", **old)) == (0 if call == "poll" else 200)
    assert code(node.begin("POST", f"/v1/{call}", {"channels": ["open:a"]}, **old)) == "token-expired"
    assert code(node.begin("GET", f"/v1/{call}?channel=open:a", **old)) == "token-expired"


@pytest.mark.parametrize(
    "cookies",
    [
        "", COOKIE, f"{COOKIE}=", "pushup=TOKEN", f"{COOKIE.lower()}=TOKEN", f"X{COOKIE}=TOKEN", f"a={COOKIE}=TOKEN",
        f"{COOKIE}x=TOKEN",
    ],
)  # fmt: skip
def test_other_cookies_are_no_tokens(node: TokenNode, cookies: str) -> None:
    """Their names are compared exactly; a client without the cookie is nobody."""
    exchange = node.begin("GET", "/v1/poll?channel=user:7", Cookie=cookies.replace("TOKEN", token()))
    assert code(exchange) == "unauthorized"
    assert status(node.begin("GET", "/v1/poll?channel=open:a", Cookie=cookies.replace("TOKEN", token()))) == 0


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),
        ({"Origin": ORIGIN}, True),
        ({"Origin": "https://push.example", "Host": "push.example"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": ORIGIN.upper()}, False),
        ({"Origin": ORIGIN + ".evil.example"}, False),
        ({"Origin": "http://app.example"}, False),
        ({"Origin": "https://push.example:8443", "Host": "push.example"}, False),
        ({"Origin": "https://evil.example", "Host": ""}, False),
    ],
)
@pytest.mark.parametrize("call", ["poll", "events", "messages"])
def test_pages_that_may_use_the_cookie(node: TokenNode, headers: dict[str, str], is_allowed: bool, call: str) -> None:
    """A browser sends it with the requests of any page; those of others are refused, also on channels of nobody."""
    good = token(pushup=MAY)
    if is_allowed:
        assert status(node.send(call, ["user:7"], good, "cookie", **headers)) in (0, 200, 201)
        return
    for channel in ("user:7", "open:a"):
        exchange = node.send(call, [channel], good, "cookie", **headers)
        assert (status(exchange), problem(exchange)["field"]) == (403, "Origin")
    assert status(node.send(call, ["user:7"], good, "bearer", **headers)) in (0, 200, 201)  # no browser adds that


@pytest.mark.parametrize("name", ["token", "access_token", "Token", "ticket", "jwt"])
@pytest.mark.parametrize("path", ["/v1/poll", "/v1/events"])
def test_a_token_never_stands_in_a_url(node: TokenNode, name: str, path: str) -> None:
    """It is refused there, and neither the response nor the log of requests shows it."""
    good = token()
    target = f"{path}?channel=open:a&{name}={good}"
    with logged_at("debug") as lines:
        exchange = RecordingExchange()
        request = Request(b"GET", target.encode(), {}, True)
        RequestLog(node.api, node.clock)(request, exchange)
    assert status(exchange) == 400
    assert lines
    for part in good.split("."):
        assert not [line for line in lines if part in line]
        assert part.encode() not in exchange.responses[0].body


@pytest.mark.parametrize(
    "rules", [RULES, ChannelRules("anyone", [ChannelRule("user:", "token"), ChannelRule("staff:", "token", "key")])]
)
def test_ids_give_nothing_away(rules: ChannelRules) -> None:
    """A channel that one may not poll answers by its id as one that there is not, whoever asks, and in every way."""
    node = TokenNode(rules=rules)
    ids = [node.make("user:7"), node.make("staff:a")]
    unknown = str(int(ids[-1]) + 1000)
    node.say("user:7", data="private")

    def seen(call: str, text: str, channels: list[str]) -> str:
        exchange = node.send(call, channels, text)
        shown = json.dumps([status(exchange), problem(exchange)["detail"]])
        for each in (*ids, unknown):
            shown = shown.replace(each, "ID")
        return shown

    texts = {
        "nobody": "",
        "somebody": token(sub="8", pushup={"poll": ["user:8"], "publish": ["user:8"]}),
        "numbers": token(pushup={"poll": [*ids, unknown, "1*"], "publish": [*ids, unknown, "1*"]}),
        "prefix": token(pushup={"poll": ["1*"], "publish": ["1*"]}),
    }
    for who, text in texts.items():
        for call in ("poll", "events", "messages"):
            for beside in ([], ["user:8"]) if rules is RULES and who in ("nobody", "somebody") else ([],):
                assert len({seen(call, text, [each, *beside]) for each in (*ids, unknown)}) == 1
    assert node.polls.count == 0


def test_rules_by_prefix(node: TokenNode) -> None:
    """The longest prefix decides who polls, and whether tokens publish."""
    everything = token(pushup={"poll": ["*"], "publish": ["*"]})
    names = ["open:a", "user:7", "staff:a", "open:staff:a", "open", "open:"]
    assert [status(node.send("poll", [name])) for name in names] == [0, 401, 401, 401, 401, 0]
    assert [status(node.send("poll", [name], everything)) for name in names] == [0] * 6
    assert [status(node.send("messages", [name], everything)) for name in names] == [201, 201, 403, 201, 201, 201]
    assert [node.call("POST", "/v1/messages", {"channels": [n], "data": 1}, **WITH_KEY).status for n in names] == [
        201
    ] * 6
    assert status(node.send("messages", ["open:a", "staff:a"], everything)) == 403


def test_a_key_that_may_read() -> None:
    """Within its prefixes; one without the right to is nobody when it polls."""
    node = TokenNode(keys=(f"reader {KEY} read=user:* read=a", "publisher the-other-key-of-this-test publish"))
    assert [status(node.send("poll", [name], KEY)) for name in ("user:7", "a", "b", "open:a", "ab")] == [
        0,
        0,
        401,
        0,
        401,
    ]
    assert status(node.send("poll", ["user:7", "b"], KEY)) == 401
    assert status(node.send("poll", ["user:7"], "the-other-key-of-this-test")) == 401
    assert status(node.send("messages", ["user:7"], KEY)) == 403
    assert status(node.send("poll", ["user:7"], KEY, "cookie")) == 401
    assert status(node.send("poll", ["user:7"], KEY, "body")) == 401
    identifier = node.call(
        "POST", "/v1/messages", {"channels": ["b"], "data": 1}, Authorization="Bearer the-other-key-of-this-test"
    )
    assert identifier.status == 201
    channel = node.state.channels.find("b")
    assert channel is not None
    assert status(node.send("poll", [str(channel.id)], KEY)) == 401


def test_a_token_cannot_use_up_the_key_of_another_publisher(node: TokenNode) -> None:
    """Each subject has its own idempotency keys; whoever has publish keys is trusted, and shares them."""
    bearers = [{"Authorization": f"Bearer {token(sub=sub, pushup={'publish': ['user:7']})}"} for sub in ("7", "8")]
    for n, who in enumerate((*bearers, WITH_KEY)):
        answers = []
        for data in (n, n, "other"):
            body = {"channels": ["user:7"], "data": data}
            answers.append(node.call("POST", "/v1/messages", body, **{"Idempotency-Key": "answer:42#3"}, **who))
        assert [answer.status for answer in answers] == [201, 201, 422]
        assert answers[0].json["id"] == answers[1].json["id"]


@pytest.mark.parametrize("call", ["messages", "channels", "revoke"])
def test_what_no_token_allows(node: TokenNode, call: str) -> None:
    """A token that may poll everything publishes nothing; and none creates channels, revokes, or sees the server."""
    reads = token(pushup={"poll": ["*"]})
    everything = token(pushup={"poll": ["*"], "publish": ["*"]})
    body = {"messages": {"channels": ["a"], "data": 1}, "channels": {"name": "a"}, "revoke": {"sub": "7"}}[call]
    for text in (reads, *([] if call == "messages" else [everything])):
        for headers in ({"Authorization": f"Bearer {text}"}, {"Cookie": f"{COOKIE}={text}"}):
            assert node.call("POST", f"/v1/{call}", body, **headers).status == 403
            for path in ("/v1/channels", "/v1/nodes"):
                assert node.call("GET", path, **headers).status == 403
    assert (len(node.state.channels), node.state.message_count) == (0, 0)


def test_a_publication_is_within_the_claim_or_nothing(node: TokenNode) -> None:
    """One message of several, and one channel of a message, that it may not use refuses all."""
    good = {"Authorization": "Bearer " + token(pushup={"publish": ["a", "team:*"]})}
    inside, outside = {"channels": ["a", "team:1"], "data": 1}, {"channels": ["team:1", "b"], "data": 1}
    assert node.call("POST", "/v1/messages", {"messages": [inside, outside]}, **good).status == 403
    assert node.call("POST", "/v1/messages", {"messages": [outside, inside]}, **good).status == 403
    assert node.state.message_count == 0
    assert node.call("POST", "/v1/messages", {"messages": [inside, inside]}, **good).status == 201


# When a token ends.


def test_a_poll_ends_before_its_token(node: TokenNode) -> None:
    """It is answered with its cursor a moment before, for later its client would get only an error."""
    end = NOW + 5 + LEEWAY
    poll = node.send("poll", ["user:7"], token(exp=NOW + 5))
    later = node.send("poll", ["user:7"], token(exp=NOW + 50))
    node.until(end - BEFORE_END_SECONDS - 0.25)
    assert (status(poll), status(later)) == (0, 0)
    node.until(end - BEFORE_END_SECONDS)
    found = answer(poll)
    assert (found["messages"], found["expires_in"]) == ([], 0)
    assert found["cursor"] == str(node.state.cursor)
    assert status(later) == 0
    late = node.send("poll", ["user:7"], token(exp=NOW + 5))
    assert (status(late), code(late)) == (401, "token-expired")
    node.until(NOW + 20)
    assert status(later) == 200  # its own timeout


def test_answers_say_for_how_long_a_token_is_valid(node: TokenNode) -> None:
    """When it is less than two minutes, in whole seconds, rounded down; the answers to others are shared."""
    for seconds, expected in (
        (30, 30),
        (ENDS_SOON_SECONDS - 1, 119),
        (ENDS_SOON_SECONDS, None),
        (5000, None),
        (1.5, 1),
    ):
        good = {"Authorization": f"Bearer {token(exp=NOW + seconds - LEEWAY)}"}
        poll = node.begin("GET", "/v1/poll?channel=user:7&cursor=now", **good)
        assert status(poll) == 0
        node.say("user:7", data=1)
        assert answer(poll).get("expires_in") == expected
        assert len(answer(poll)["messages"]) == 1


def test_a_token_that_ends_while_its_answer_is_due(node: TokenNode) -> None:
    """Nothing is delivered after its end; the message is there for the next poll, with the cursor of before."""
    cursor = str(node.state.cursor)
    poll = node.send("poll", ["user:7"], token(exp=NOW + 5))
    stream = node.send("events", ["user:7"], token(exp=NOW + 5))
    take(stream)
    node.clock.rightNow += 4 + LEEWAY
    assert node.call("POST", "/v1/messages", {"channels": ["user:7"], "data": "late"}, **WITH_KEY).status == 201
    node.clock.rightNow += 1  # without the timers: this node is slow
    node.run()
    assert (status(poll), code(poll)) == (401, "token-expired")
    (last,) = take(stream)
    assert (last.event, last.data["type"]) == ("error", "urn:pushup:token-expired")
    again = node.begin("GET", f"/v1/poll?channel=user:7&cursor={cursor}", Authorization=f"Bearer {token()}")
    assert [message.data for message in answer(again)["messages"]] != []


def test_a_stream_ends_with_its_token(node: TokenNode) -> None:
    """Its first event says when, and its last why; another token continues where it was, and nothing is lost."""
    end = NOW + 3 + LEEWAY
    stream = node.send("events", ["user:7"], token(exp=NOW + 3))
    first, start = take(stream)
    assert (first.event, first.id, first.data) == ("expiry", "", {"expires_in": 13})
    cursor = start.id
    got: list[Any] = []
    for number in range(60):
        node.advance(0.25)
        node.say("user:7", data=number)
        found = take(stream)
        got += data_of(found)
        cursor = cursor_of(found, cursor)
        if stream.held is None:
            assert node.clock.seconds() >= end
            assert (found[-1].event, found[-1].id) == ("error", "")
            assert found[-1].data["type"] == "urn:pushup:token-expired"
            stream = node.send("events", ["user:7"], token(exp=NOW + 100), Last_Event_ID=cursor)
            found = take(stream)
            got += data_of(found)
            cursor = cursor_of(found, cursor)
    assert got == list(range(60))
    assert node.streaming.count == 1


def test_an_idle_stream_ends_with_its_token(node: TokenNode) -> None:
    """Not only when there is something for it, nor with its next heartbeat."""
    stream = node.send("events", ["user:7"], token(exp=NOW + 5 - LEEWAY))
    node.until(NOW + 5 - 0.25)
    take(stream)
    assert node.streaming.count == 1
    node.until(NOW + 5.25)
    assert node.streaming.count == 0
    assert take(stream)[-1].data["type"] == "urn:pushup:token-expired"


def test_a_token_that_is_about_to_end_opens_no_stream(node: TokenNode) -> None:
    """Its client gets an error with a status, which it can read."""
    node.until(NOW + 5 + LEEWAY - BEFORE_END_SECONDS)
    stream = node.send("events", ["user:7"], token(exp=NOW + 5))
    assert (status(stream), code(stream)) == (401, "token-expired")
    assert node.streaming.count == 0


@pytest.mark.parametrize("name", ["open:a", "user:7"])
def test_a_token_ends_polls_that_need_none(name: str) -> None:
    """Its client said who it is, and is told that this is over."""
    node = TokenNode(rules=ChannelRules())
    poll = node.send("poll", [name], token(exp=NOW + 5))
    node.until(NOW + 5 + LEEWAY)
    assert answer(poll)["expires_in"] == 0


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    with logged_at("info") as lines:
        yield lines


def test_bad_tokens_are_rarely_logged(node: TokenNode, log_lines: list[str]) -> None:
    """However many come; a line shows nothing that could be used, and cannot be forged."""
    for number in range(200):
        forged = write({"alg": "HS256", "kid": f"\n2027 forged {number}"}, claims(), OTHER_SECRET)
        assert code(node.send("poll", ["user:7"], forged)) == "invalid-token"
        node.send("poll", ["user:7"], token(pushup={"poll": ["\nforged*x"]}))
    assert 1 <= len(log_lines) <= 2
    assert not [line for line in log_lines if "\n" in line or "eyJ" in line]


# What a second look found.


def test_no_page_of_another_origin_revokes() -> None:
    """Not on a server without keys either, where anybody else may."""
    node = InMemoryNode()
    assert node.call("POST", "/v1/revoke", {"sub": "7"}, Origin="https://evil.example").status == 403
    assert node.call("POST", "/v1/revoke", {"sub": "7"}).status == 200


def test_an_id_does_not_lead_around_a_rule() -> None:
    """A channel where only keys publish is closed to every token, by its name and by its id."""
    rules = ChannelRules("token", [ChannelRule("admin:", "token", "key")])
    node = TokenNode(rules=rules)
    created = node.call("POST", "/v1/channels", {"name": "admin:x"}, Authorization=f"Bearer {KEY}").json
    everything = {"Authorization": f"Bearer {token(pushup={'publish': ['*']})}"}
    for channel in ("admin:x", str(created["id"])):
        assert node.call("POST", "/v1/messages", {"channels": [channel], "data": 1}, **everything).status in (403, 404)
    assert node.state.message_count == 0


@pytest.mark.parametrize("text", ["x", "yJhbGciOi.a.b", "eyJhbGciOi.ab", " ", "eyJ0"])
def test_whatever_is_no_token_is_refused_where_anyone_may_poll(text: str) -> None:
    """It is not taken for nobody's, with publish keys or without."""
    for keys in ((), (KEY,)):
        node = TokenNode(rules=ChannelRules("anyone"), keys=keys)
        exchange = node.begin("GET", "/v1/poll?channel=a&timeout=0", Authorization=f"Bearer {text}x")
        assert code(exchange) == "invalid-token"


@pytest.mark.parametrize("between", [" ", "  ", "\t", " \t "])
def test_a_token_behind_any_space(between: str) -> None:
    node = TokenNode()
    exchange = node.begin("GET", "/v1/poll?channel=user:7&timeout=0", Authorization=f"Bearer{between}{token()}")
    assert len(exchange.answers) + len(exchange.responses) == 1
    assert not exchange.responses or exchange.responses[0].status == 200


def test_an_id_tells_nothing_beside_a_closed_channel() -> None:
    """The answer is the same for an id that a private channel has, and for one that none has."""
    node = TokenNode(rules=ChannelRules("anyone", [ChannelRule("user:", "token")]))
    private = node.call("POST", "/v1/channels", {"name": "user:7"}, Authorization=f"Bearer {KEY}").json["id"]
    found = [node.begin("GET", f"/v1/poll?channel={n}&channel=user:8") for n in (private, private + 1)]
    assert [status(exchange) for exchange in found] == [401, 401]


def test_a_cookie_is_not_for_pages_that_only_a_star_allows() -> None:
    """The browser sends it with requests of every page."""
    node = TokenNode(cors_origins=("*",))
    for origin, allowed in (("https://evil.example", 403), ("null", 403), ("https://x", 0)):
        fields = {"Origin": origin, "Host": "x", "Cookie": f"{COOKIE}={token()}"}
        assert status(node.begin("GET", "/v1/poll?channel=user:7", **fields)) == allowed, origin
