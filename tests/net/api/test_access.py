"""Host names that a server accepts, who may publish, and who is shown the details that are for the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushup.core.commands import Command
from pushup.core.errors import Forbidden, Unauthorized, Unavailable
from pushup.core.grant import EVERYTHING, Grant, Right
from pushup.metrics import Metrics, MetricsPage
from pushup.net.api.access import Access
from pushup.net.api.cors import Origins
from pushup.net.api.error_responses import ErrorResponder
from pushup.net.api.request_log import RequestLog
from pushup.net.application_interface import Client
from pushup.net.http_errors import MisdirectedRequest, SpokeTls
from pushup.net.log_throttle import LOG_SECONDS
from pushup.net.requests_and_responses import Request
from pushup.settings.settings import SettingsError, read_settings
from tests.net.in_memory_node import AroundMemory, InMemoryNode, RecordingExchange
from tests.net.in_memory_server import InMemoryServer
from tests.net.observed_log import logged_at
from tests.net.scripted_application import get

KEY = "a-key-of-sixteen-characters"
POLL = "/v1/poll?channel=a&timeout=0"
GOOD = [
    "localhost", "LOCALHOST:8080", "app.localhost:80", "localhost.", "127.0.0.1", "127.0.0.1:8080", "192.168.1.7:80",
    "[::1]", "[::1]:8080", "[2001:db8::1]", "",
]  # fmt: skip
EVIL = [
    "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "x",
    "evil.localhost.example", "1.2.3",
]  # fmt: skip


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """The lines logged at level info."""
    with logged_at("info") as lines:
        yield lines


def poll_status(node: InMemoryNode, host: str | None) -> int:
    """The status of a poll sent to this host name."""
    headers = {} if host is None else {"Host": host}
    exchange = node.begin("GET", POLL, **headers)
    return 200 if exchange.answers else exchange.responses[0].status


@pytest.mark.parametrize("host", [*GOOD, None])
def test_without_keys_a_server_accepts_addresses_and_localhost(host: str | None) -> None:
    """A request without a host, as HTTP/1.0 allows, is accepted as well: browsers always send one."""
    assert poll_status(InMemoryNode(hosts=()), host) == 200


@pytest.mark.parametrize("host", EVIL)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", POLL, b""),
        ("POST", "/v1/poll", {"channels": ["a"]}),
        ("POST", "/v1/messages", {"channels": ["a"], "data": 1}),
        ("DELETE", "/v1/channels/a", b""),
        ("GET", "/metrics", b""),
        ("GET", "/nothing", b""),
        ("OPTIONS", "/v1/messages", b""),
    ],
)
def test_without_keys_it_accepts_no_other_name(host: str, method: str, path: str, body: object) -> None:
    """Otherwise a page of that name could publish and read, once its owner points the name here (DNS rebinding)."""
    node = InMemoryNode(hosts=(), cors_origins=("*",))
    result = node.call(method, path, body, Host=host, Origin=f"http://{host}")
    assert (result.status, result.json["type"], result.json["field"]) == (421, "urn:pushup:misdirected-request", "Host")
    assert "hosts" in result.json["detail"]
    assert (node.state.message_count, len(node.state.channels)) == (0, 0)


def test_the_names_in_hosts_are_accepted() -> None:
    """Case and port do not matter, and `*` stands for all names."""
    node = InMemoryNode(hosts=("Push.example",))
    assert [poll_status(node, host) for host in ("push.EXAMPLE:8443", "push.example.", "localhost")] == [200] * 3
    assert poll_status(node, "other.push.example") == 421
    assert poll_status(InMemoryNode(hosts=("*",)), "evil.example") == 200


def test_with_keys_any_name_is_accepted_unless_hosts_is_set() -> None:
    """Keys already protect the server; `hosts` is an additional check."""
    assert poll_status(InMemoryNode(hosts=(), publish_keys=(KEY,)), "any.example") == 200
    assert poll_status(InMemoryNode(hosts=("one.example",), publish_keys=(KEY,)), "any.example") == 421
    assert poll_status(InMemoryNode(hosts=("one.example",), publish_keys=(KEY,)), "one.example") == 200


def test_a_name_that_was_accepted_stands_for_itself() -> None:
    """Not for another one, and not when the keys are gone for which it was."""
    node = InMemoryNode(hosts=())
    assert [poll_status(node, host) for host in ("localhost", "evil.example", "localhost")] == [200, 421, 200]
    access, request = Access(publish_keys=(KEY,)), Request(b"GET", b"/", {b"host": b"any.example"}, True)
    access.check_host(request)
    access.use_publish_keys(())
    with pytest.raises(MisdirectedRequest):
        access.check_host(request)


@pytest.mark.parametrize("host", ["http://push.example", "push.example:80", "push example", "", "-", "a/b"])
def test_hosts_are_names(host: str) -> None:
    """A value that could never match is refused with a correction."""
    if host:
        with pytest.raises(SettingsError, match=r"hosts: .* is not a host name; write one such as push\.example\.org"):
            read_settings(None, {}, {"hosts": [host]})
    assert read_settings(None, {}, {"hosts": "push.example.org,*,intern"}).server.hosts[2] == "intern"


# Details for the operator.


class _Broken(AroundMemory):
    """Refuses everything, for a reason with details that strangers must not see."""

    error = Unavailable("the message log cannot be reached", retry_after=1, operator_detail="10.0.0.7:6379: refused")

    def append(self, command: Command, then: object) -> None:
        then(self.error)  # type: ignore[operator]

    def why_not_ready(self) -> Unavailable | None:
        return self.error


LOCAL, PROXY, STRANGER, UNIX = Client("127.0.0.1", 5), Client("127.0.0.1", 6), Client("192.0.2.7", 7), Client("")


@pytest.mark.parametrize(
    ("keys", "client", "headers", "shown"),
    [
        ((), LOCAL, {}, True),
        ((), Client("::1", 9), {}, True),
        ((), UNIX, {}, True),
        ((), STRANGER, {}, False),
        ((), Client("gone"), {}, False),
        ((), PROXY, {"X-Forwarded-For": "192.0.2.7"}, False),
        ((), PROXY, {"Forwarded": "for=192.0.2.7"}, False),
        ((), PROXY, {"X-Real-IP": "192.0.2.7"}, False),
        ((), PROXY, {"Via": "1.1 proxy"}, False),
        ((), LOCAL, {"Origin": "http://localhost"}, False),
        ((KEY,), LOCAL, {}, False),
        ((KEY,), LOCAL, {"Authorization": f"Bearer {KEY}x"}, False),
        ((KEY,), STRANGER, {"Authorization": f"Bearer {KEY}"}, True),
    ],
)
@pytest.mark.parametrize("path", ["/readyz", "/v1/messages", "/v1/channels"])
def test_who_is_shown_operator_details(
    keys: tuple[str, ...], client: Client, headers: dict[str, str], shown: bool, path: str
) -> None:
    """Strangers learn only that it does not work; details need a key, or without keys a client on the same machine."""
    node = InMemoryNode(publish_keys=keys, broadcast=_Broken)
    node.client = client
    if path == "/readyz":
        result = node.call("GET", path, **headers)
        text = result.json["reason"]
    else:
        body = {"channels": ["a"], "data": 1} if path == "/v1/messages" else {"name": "a"}
        result = node.call("POST", path, body, **headers)
        text = result.json["detail"]
        if result.status in (401, 403):  # a page of another origin, or a client without a key
            assert not shown
            return
    assert result.status == 503
    assert text == "the message log cannot be reached" + (": 10.0.0.7:6379: refused" if shown else "")
    assert shown == (b"10.0.0.7" in result.body)


# How refused requests are logged and counted.


def counted(metrics: Metrics) -> dict[str, int]:
    lines = MetricsPage("", metrics.collect).text().decode().splitlines()
    found = [line for line in lines if line.startswith("pushup_refusals_total{")]
    return {line.split('"')[1]: int(float(line.rsplit(" ", 1)[1])) for line in found}


def test_refusals_are_counted_and_rarely_logged(log_lines: list[str]) -> None:
    """Each kind has a counter, and at most one log line a minute, with the number of refusals."""
    node = InMemoryNode(publish_keys=(KEY,), hosts=("good.example",))
    open_node = InMemoryNode(hosts=())
    for _ in range(30):
        node.call("POST", "/v1/messages", {}, Host="good.example")
        node.call("POST", "/v1/messages", {}, Host="good.example", Authorization="Bearer wrong")
        node.call("GET", "/healthz", Host="evil.example")
        open_node.call("POST", "/v1/messages", {}, Host="localhost", Origin="http://evil.example")
        node.call("GET", "/v1/poll", Host="good.example")
    assert counted(node.metrics) == {"unauthorized": 30, "forbidden": 30, "host": 30}
    assert counted(open_node.metrics) == {"origin": 30}
    assert len(log_lines) == 4
    assert all("refused a request from 127.0.0.1:50000" in line for line in log_lines)
    assert not any("wrong" in line for line in log_lines), "no key is ever logged"
    node.clock.advance(LOG_SECONDS)
    node.call("GET", "/healthz", Host="evil.example")
    assert len(log_lines) == 5
    assert log_lines[-1].endswith("(29 more since last logged)")


def test_what_an_authorizer_makes_of_a_refusal_counts(log_lines: list[str]) -> None:
    """As what it is derived from."""

    class Banned(Forbidden):
        pass

    metrics = Metrics()
    ErrorResponder(metrics, lambda: 0.0).note(Banned("for a week"), Client("192.0.2.7:1"))
    assert counted(metrics) == {"forbidden": 1}
    assert len(log_lines) == 1


def test_tls_at_a_plain_port_is_logged(log_lines: list[str]) -> None:
    """It is logged once, however many clients try; log and response say what to change."""
    node = InMemoryNode()
    server = InMemoryServer(node.api, clock=node.clock)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64))
    for _ in range(3):
        client = server.connect()
        client.send(hello)
        reply = client.reply()
        assert reply.status == 400
        assert b"plain HTTP, not TLS" in reply.body
        client = server.connect()
        client.send(get(b"/healthz"))
        assert client.reply().status == 200
    assert len([line for line in log_lines if "plain HTTP, not TLS" in line]) == 1
    assert counted(node.metrics) == {"tls": 3}


# Grants.


@pytest.mark.parametrize(
    ("keys", "origins", "headers", "rights"),
    [
        ((), (), {}, {"publish", "channels", "operate", "revoke", "drain", "see details locally"}),
        ((), (), {"via": "1.1 proxy"}, {"publish", "channels", "operate", "revoke", "drain"}),
        ((), (), {"origin": "https://evil.example"}, {"operate"}),
        (
            (),
            ("https://app.example",),
            {"origin": "https://app.example"},
            {"publish", "channels", "operate", "revoke", "drain"},
        ),
        ((KEY,), (), {}, set()),
        ((KEY,), (), {"authorization": f"Bearer {KEY}x"}, set()),
        (
            (KEY,),
            (),
            {"authorization": f"Bearer {KEY}"},
            {"publish", "channels", "operate", "revoke", "drain", "see details"},
        ),
    ],
)
def test_grants(keys: tuple[str, ...], origins: tuple[str, ...], headers: dict[str, str], rights: set[Right]) -> None:
    """A grant covers all channels and does not expire; `require` raises exactly for the rights it lacks."""
    access = Access(publish_keys=keys, origins=Origins(frozenset(origins)))
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    request = Request(b"GET", b"/", fields, keep_alive=True)
    grant = access.grant(request)
    name = "publish_keys" if "authorization" in headers and rights else ""
    assert grant == Grant(dict.fromkeys(rights, EVERYTHING), key_name=name, key_id=grant.key_id)
    assert bool(grant.key_id) == bool(name)
    right: Right
    for right in ("publish", "operate"):
        if right in rights:
            assert access.require(right, request) == grant
        else:
            with pytest.raises((Unauthorized, Forbidden)):
                access.require(right, request)


@pytest.mark.parametrize(("client", "shown"), [(LOCAL, True), (STRANGER, False)])
def test_who_is_shown_why_a_request_was_refused(client: Client, shown: bool) -> None:
    """The same holds for errors that occur before the request is handled, or that end a poll."""
    node = InMemoryNode()
    exchange = RecordingExchange(client=client)
    request = Request(b"GET", b"/v1/poll?channel=a", {}, keep_alive=True)
    node.api.refuse(Unavailable("not now", operator_detail="10.0.0.7"), request, exchange)
    assert (b"10.0.0.7" in exchange.responses[0].body) == shown


def test_a_refusal_without_a_request() -> None:
    """A refusal of bytes that are not a request is counted, and shows no details."""
    node = InMemoryNode()
    exchange = RecordingExchange()
    RequestLog(node.api, node.clock).refuse(SpokeTls("not TLS", operator_detail="a secret"), None, exchange)
    assert exchange.responses[0].status == 400
    assert b"secret" not in exchange.responses[0].body
    assert counted(node.metrics) == {"tls": 1}
