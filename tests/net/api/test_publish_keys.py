"""Publish keys: who may publish and inspect, and the errors for everybody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from pushup.core.errors import Forbidden, PushUpError, Unauthorized, UnknownChannel
from pushup.core.grant import EVERYTHING, Grant, Scope
from pushup.net.api.access import Access, check_channels
from pushup.net.api.channel_routes import Channels
from pushup.net.api.channel_rules import ChannelRules
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.node_interface import OneProcess
from pushup.net.api.publish_keys import read_key
from pushup.net.api.publishers import Publishers
from pushup.net.api.publishing import Publishing
from pushup.net.api.schemas import PollLimits, PublicationLimits
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import InMemoryNode, RecordingExchange

KEYS = ("first-key-of-sixteen", "second-key-of-sixteen")
CALLS = [
    ("POST", "/v1/messages", {"channels": ["a"], "data": 1}, 201),
    ("POST", "/v1/channels", {"name": "b"}, 201),
    ("POST", "/v1/channels/a/renew", {}, 200),
    ("GET", "/v1/channels", b"", 200),
    ("HEAD", "/v1/channels", b"", 200),
    ("GET", "/v1/channels/a", b"", 200),
    ("DELETE", "/v1/channels/a", b"", 204),
]


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode(publish_keys=KEYS)
    node.call("POST", "/v1/channels", {"name": "a"}, Authorization=f"Bearer {KEYS[0]}")
    return node


@pytest.mark.parametrize(("method", "path", "body", "status"), CALLS)
@pytest.mark.parametrize("key", KEYS)
def test_the_right_key(node: InMemoryNode, method: str, path: str, body: object, status: int, key: str) -> None:
    """Each of the keys is valid for every call that needs one, in whatever case the scheme is written."""
    scheme = "Bearer" if key == KEYS[0] else "bearer "
    assert node.call(method, path, body, Authorization=f"{scheme} {key}").status == status


@pytest.mark.parametrize(("method", "path", "body", "status"), CALLS)
def test_no_key_and_wrong_keys(node: InMemoryNode, method: str, path: str, body: object, status: int) -> None:
    """Without a key the status is 401 and names the scheme, with a wrong one 403; nothing is changed."""
    for headers in (
        {},
        {"Authorization": "Basic Zm9vOmJhcg=="},
        {"Authorization": "Bearer"},
        {"Authorization": KEYS[0]},
    ):
        result = node.call(method, path, body, **headers)
        assert (result.status, result.headers[b"WWW-Authenticate"]) == (401, b'Bearer realm="PushUp"')
    for key in (KEYS[0][:-1], KEYS[0] + "x", KEYS[0].upper(), f"{KEYS[0]} {KEYS[1]}", "\xe9" * 20):
        assert node.call(method, path, body, Authorization=f"Bearer {key}").status == 403
    assert node.call(method, path, body).status == 401
    assert (len(node.state.channels), node.state.message_count) == (1, 0)


def test_the_key_is_checked_before_the_body(node: InMemoryNode) -> None:
    """A client without a key learns nothing about other errors in its request."""
    assert node.call("POST", "/v1/messages", b"nonsense").status == 401
    assert node.call("GET", "/v1/channels/unknown").status == 401


def test_polling_needs_no_key(node: InMemoryNode) -> None:
    assert node.begin("GET", "/v1/poll?channel=a&timeout=0").answers
    for path in ("/v1/cursor", "/healthz", "/readyz", "/metrics"):
        assert node.call("GET", path).status == 200


def test_without_keys_everybody_may_publish() -> None:
    """If no keys are set none is needed, and sending one does no harm."""
    node = InMemoryNode()
    body = {"channels": ["a"], "data": 1}
    assert node.call("POST", "/v1/messages", body).status == 201
    assert node.call("POST", "/v1/messages", body, Authorization="Bearer whatever").status == 201


PUBLISHING = [call for call in CALLS if call[0] in ("POST", "DELETE")]


@pytest.mark.parametrize(("method", "path", "body", "status"), PUBLISHING)
def test_without_keys_a_page_of_another_origin_may_not_publish(
    method: str, path: str, body: object, status: int
) -> None:
    """A page in a developer's browser cannot publish on the developer's machine, unless it is the server's own."""
    node = InMemoryNode(cors_origins=("https://app.example",))
    node.call("POST", "/v1/channels", {"name": "a"})
    host = "127.0.0.1:8080"
    for origin in ("https://evil.example", "http://127.0.0.1", "http://127.0.0.1:8081", "null", "", f"ftp://{host}"):
        result = node.call(method, path, body, Origin=origin, Host=host)
        assert (result.status, result.json["field"]) == (403, "Origin")
    assert (len(node.state.channels), node.state.message_count) == (1, 0)
    assert node.call("POST", "/v1/channels", b"nonsense", Origin="http://", Host="").status == 403
    for headers in (
        {"Origin": f"http://{host}", "Host": host},
        {"Origin": "https://localhost", "Host": "LocalHost"},
        {"Origin": "https://app.example", "Host": host},
        {"Host": host},
    ):
        node = InMemoryNode(cors_origins=("https://app.example",))
        node.call("POST", "/v1/channels", {"name": "a"})
        assert node.call(method, path, body, **headers).status == status


def test_any_origin_may_publish_if_allowed() -> None:
    """Either all origins are allowed, or the request has a key; reading channels is not publishing."""
    body = {"channels": ["a"], "data": 1}
    evil = "https://evil.example"
    assert InMemoryNode(cors_origins=("*",)).call("POST", "/v1/messages", body, Origin=evil).status == 201
    with_keys = InMemoryNode(publish_keys=KEYS)
    key = f"Bearer {KEYS[0]}"
    assert with_keys.call("POST", "/v1/messages", body, Origin=evil, Authorization=key).status == 201
    assert InMemoryNode().call("GET", "/v1/channels", Origin=evil).status == 200


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        (b"POST", b"/v1/messages", 1024 * 1024),
        (b"POST", b"/v1/channels", PollLimits().poll_body_limit_bytes),
        (b"POST", b"/v1/poll", PollLimits().poll_body_limit_bytes),
        (b"OPTIONS", b"/v1/messages", PollLimits().poll_body_limit_bytes),
    ],
)
def test_the_head_decides(node: InMemoryNode, method: bytes, path: bytes, limit: int) -> None:
    """The head alone decides how large the body may be, and whether a key is missing."""

    def admit(**headers: bytes) -> int:
        fields = {name.encode(): value for name, value in headers.items()}
        return node.api.admit(Request(method, path, fields, keep_alive=True))

    assert admit(authorization=b"Bearer " + KEYS[0].encode()) == limit
    if path == b"/v1/poll" or method == b"OPTIONS":
        assert admit() == limit
    else:
        with pytest.raises(Unauthorized):
            admit()
        with pytest.raises(Forbidden):
            admit(authorization=b"Bearer x")


# Names and scopes.


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (KEYS, dict.fromkeys(KEYS, "publish_keys")),
        ((f"ci {KEYS[0]}", KEYS[1]), {KEYS[0]: "ci", KEYS[1]: "publish_keys"}),
        ((f"web {KEYS[0]}", f"web  {KEYS[1]}"), dict.fromkeys(KEYS, "web")),
    ],
)
def test_the_name_of_a_key(keys: tuple[str, ...], named: dict[str, str]) -> None:
    """A grant has the name of the key that was sent, which may be that of the setting. A name is no part of a key."""
    access = Access(publish_keys=keys)

    def key_name(key: str) -> str:
        return access.grant(Request(b"GET", b"/", {b"authorization": f"Bearer {key}".encode()}, True)).key_name

    assert {key: key_name(key) for key in KEYS} == named
    assert {key_name(text) for text in (*named.values(), f"ci {KEYS[0]}", f"{KEYS[0]}x")} == {""}
    access.use_publish_keys((f"new {KEYS[1]}",))
    assert (key_name(KEYS[0]), key_name(KEYS[1])) == ("", "new")


@pytest.mark.parametrize(
    ("keys", "headers", "owner"),
    [
        ((f"ci {KEYS[0]}", KEYS[1]), {"Authorization": f"Bearer {KEYS[0]}"}, "ci"),
        ((f"ci {KEYS[0]}", KEYS[1]), {"Authorization": f"Bearer {KEYS[1]}"}, "publish_keys"),
        ((), {}, ""),
        ((), {"Authorization": "Bearer whatever"}, ""),
    ],
)
def test_messages_belong_to_the_key_that_they_were_published_with(
    keys: tuple[str, ...], headers: dict[str, str], owner: str
) -> None:
    """They count as those of its name, not of the key; without keys, nobody's."""
    node = InMemoryNode(publish_keys=keys)
    drafts = [{"channels": ["a"], "data": n, "ephemeral": n == 2} for n in (1, 2)]
    assert node.call("POST", "/v1/messages", {"messages": drafts}, **headers).status == 201
    channel = node.state.channels.find("a")
    assert channel is not None
    assert [message.shelf.owner for message in channel.messages or ()] == [owner, owner]


SOME = Scope(frozenset(["a"]), ("team:",))
SCOPED = Grant({"publish": SOME, "channels": SOME})


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (("a",), None),
        (("team:3", "a"), None),
        (("b",), Forbidden),
        (("a", "b"), Forbidden),
        (("team",), Forbidden),
        (("aa",), Forbidden),
    ],
)
def test_a_grant_for_some_channels(names: tuple[str, ...], error: type[PushUpError] | None) -> None:
    """It allows publishing to them, and changing them, and no other; nothing changes if one of several is another."""
    node = InMemoryNode()
    error_responder = ErrorResponder(node.metrics, node.clock.seconds)
    publishers = Publishers(node.metrics, node.clock.seconds)
    publishing = Publishing(node.node, PublicationLimits(), error_responder, node.access, publishers, None)
    channels = Channels(node.node, OneProcess(bytes, node.polls.subscribers), error_responder, node.access)
    drafts = [{"channels": ["a"], "data": 1}, {"channels": names, "data": 2}]
    calls: list[tuple[Callable[..., object], Any, Any]] = [
        (publishing.publish, {"channels": names, "data": 1}, b""),
        (publishing.publish, {"messages": drafts}, b""),
    ]
    if len(names) == 1:
        calls += [(channels.create, {"name": names[0]}, b"")]
        calls += [(channels.renew, {}, names[0]), (channels.close, {}, names[0])]
    for handler, body, argument in calls:
        exchange, before = RecordingExchange(), node.state.cursor
        request = Request(b"POST", b"/", {}, True, json.dumps(body).encode())
        if error is None:
            handler(request, argument, exchange, SCOPED)
            assert exchange.responses[0].status in (200, 201, 204, 409)
        else:
            with pytest.raises(error):
                handler(request, argument, exchange, SCOPED)
            assert node.state.cursor == before


def test_a_number_is_not_the_channel_with_that_id() -> None:
    """Whoever may use a number may not use the channel that has it as its id; one created without a name, yes."""
    node = InMemoryNode()
    private = str(node.call("POST", "/v1/channels", {"name": "private"}).json["id"])
    nameless = str(node.call("POST", "/v1/channels", {}).json["id"])
    grant = Grant({"publish": Scope(frozenset([private, nameless, "private"]))})
    with pytest.raises(UnknownChannel):
        check_channels(grant, "publish", (private,), node.node, ChannelRules())
    check_channels(grant, "publish", (nameless, "private"), node.node, ChannelRules())
    check_channels(Grant({"publish": EVERYTHING}), "publish", (private,), node.node, ChannelRules())
    with pytest.raises(Forbidden):
        check_channels(grant, "read", (nameless,), node.node, ChannelRules())


# Keys with rights.

HASH = sha256(KEYS[0].encode()).hexdigest()
CREATE = ("POST", "/v1/channels", {"name": "new"})
RENEW: tuple[str, str, object] = ("POST", "/v1/channels/a/renew", {})
CLOSE = ("DELETE", "/v1/channels/a", b"")
LIST, NODES, SHOW = ("GET", "/v1/channels", b""), ("GET", "/v1/nodes", b""), ("GET", "/v1/channels/a", b"")
REVOKE = ("POST", "/v1/revoke", {"sub": "7"})
MESSAGE, OTHER = [("POST", "/v1/messages", {"channels": [name], "data": 1}) for name in ("a", "other")]
POLL, POLL_OTHER = ("GET", "/v1/poll?channel=a&timeout=0", b""), ("GET", "/v1/poll?channel=other&timeout=0", b"")
ALL = (MESSAGE, OTHER, CREATE, RENEW, CLOSE, LIST, SHOW, NODES, REVOKE, POLL, POLL_OTHER)
USUAL = {0, 1, 2, 3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("KEY", USUAL),
        ("ci KEY", USUAL),
        (f"ci sha256:{HASH}", USUAL),
        (f"sha256:{HASH}", USUAL),
        ("ci KEY publish", {0, 1}),
        ("ci KEY publish=a", {0}),
        ("KEY publish=a*", {0}),
        ("ci KEY publish=b publish=o*", {1}),
        (f"ci sha256:{HASH} publish=a read=other", {0, 10}),
        ("ci KEY channels", {2, 3, 4}),
        ("ci KEY channels=a", {3, 4}),
        ("ci KEY channels=n*", {2}),
        ("ci KEY operate", {5, 6, 7, 8}),
        ("ci KEY read", {9, 10}),
        ("ci KEY read=*", {9, 10}),
        ("ci KEY read=a publish=other", {1, 9}),
    ],
)
def test_what_a_key_allows(line: str, allowed: set[int]) -> None:
    """Each right is for its own calls and channels; a key with rights has no others. A hash is as good as the key."""
    for number, (method, path, body) in enumerate(ALL):
        node = InMemoryNode(publish_keys=(line.replace("KEY", KEYS[0]), KEYS[1]), rules=ChannelRules("token"))
        node.call("POST", "/v1/channels", {"name": "a"}, Authorization=f"Bearer {KEYS[1]}")
        before = node.state.cursor
        exchange = node.begin(method, path, body, Authorization=f"Bearer {KEYS[0]}")
        is_allowed = bool(exchange.answers) or exchange.responses[0].status in (200, 201, 204)
        assert is_allowed == (number in allowed), (method, path)
        if not is_allowed:
            assert exchange.responses[0].status in (401, 403)
            assert node.state.cursor == before


@pytest.mark.parametrize(
    "line",
    [
        "", "   ", "short", "ci short", f"ci {KEYS[0]} more", f"ci {KEYS[0]} {KEYS[1]}", f"{KEYS[0]} {KEYS[1]}",
        f"ci {KEYS[0]} write", f"ci {KEYS[0]} publish=a,b", f"ci {KEYS[0]} publish=*a", f"ci {KEYS[0]} publish=a**",
        f"ci {KEYS[0]} publish=a\u0000", f"ci {KEYS[0]} Publish", f"ci publish {KEYS[0]}", "ci publish", "publish read",
        f"ci sha256:{HASH[:-1]}", f"ci sha256:{HASH}0", f"ci sha256:{HASH.upper()}", "ci sha256:", f"ci SHA256:{HASH}é",
        f"c/i {KEYS[0]}", f"-ci {KEYS[0]}", f"ci {KEYS[0]}é", f"ci {KEYS[0]}\x7f", f"ci {KEYS[0]} publish={'x' * 256}",
    ],
)  # fmt: skip
def test_lines_that_are_no_keys(line: str) -> None:
    """They are refused, and the error shows neither a key nor a hash."""
    with pytest.raises(ValueError, match=r"^(is|has) ") as error:
        read_key(line)
    for secret in (*KEYS, HASH, HASH[:-1]):
        assert secret not in str(error.value)


def test_a_hash_is_not_the_key() -> None:
    """Who has seen the settings cannot send what is written there."""
    node = InMemoryNode(publish_keys=(f"ci sha256:{HASH}",))
    for sent in (HASH, f"sha256:{HASH}", f"ci sha256:{HASH}", bytes.fromhex(HASH).decode("latin-1")):
        assert (
            node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, Authorization=f"Bearer {sent}").status
            == 403
        )
    good = {"Authorization": f"Bearer {KEYS[0]}"}
    assert node.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}, **good).status == 201
    assert read_key(KEYS[0].title()) != read_key(KEYS[0])
    assert read_key(f"ci sha256:{HASH}") == read_key(f"ci {KEYS[0]}")
    assert KEYS[0] not in repr(read_key(f"ci {KEYS[0]} publish=a"))
