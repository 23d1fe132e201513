"""Whom a request comes from, behind proxies that are trusted, and those that are not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.net.api.request_log import RequestLog
from pushup.net.application_interface import Client
from pushup.net.proxies import HOPS_LIMIT, TrustedProxies
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import InMemoryNode
from tests.net.in_memory_server import InMemoryServer
from tests.net.observed_log import logged_at
from tests.net.scripted_application import get

TRUSTED = ("10.0.0.0/8", "2001:db8::/32", "unix")
PROXY = Client("10.0.0.1", 4711)


def client(value: str | None, peer: Client = PROXY, *, rfc: bool = False) -> Client:
    name = b"forwarded" if rfc else b"x-forwarded-for"
    headers = {} if value is None else {name: value.encode("latin-1")}
    proxies = TrustedProxies(TRUSTED, "Forwarded" if rfc else "X-Forwarded-For")
    return proxies.client(Request(b"GET", b"/", headers, keep_alive=True), peer)


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:5000", "192.0.2.7"),
        ("[2001:db9::7]:5000", "2001:db9::7"),
        ("2001:db9::7", "2001:db9::7"),
        ("8.8.8.8, 192.0.2.7", "192.0.2.7"),  # the client wrote the first one itself
        ("192.0.2.7, 10.1.2.3, 2001:db8::9", "192.0.2.7"),
        ("10.1.2.3, 10.1.2.4", "10.1.2.3"),
        ("192.0.2.7, ::ffff:10.1.2.3", "192.0.2.7"),  # from a proxy that takes both kinds of addresses with one socket
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, unknown", "10.0.0.1"),
        ("192.0.2.7, unknown, 10.5.5.5", "10.5.5.5"),
        ("", "10.0.0.1"),
        (", ".join(["192.0.2.7", *["10.0.0.9"] * HOPS_LIMIT]), "10.0.0.9"),
    ],
)
def test_x_forwarded_for(value: str, host: str) -> None:
    assert client(value).host == host


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("for=192.0.2.7", "192.0.2.7"),
        ('For="[2001:db9::7]:4711";proto=https;by=10.0.0.1', "2001:db9::7"),
        ('proto=http;for="192.0.2.7:80", for=10.9.9.9', "192.0.2.7"),
        ("for=_hidden", "10.0.0.1"),
        ("for=192.0.2.7, for=unknown", "10.0.0.1"),
        ("192.0.2.7", "10.0.0.1"),
    ],
)
def test_forwarded(value: str, host: str) -> None:
    assert client(value, rfc=True).host == host


def test_only_trusted_proxies_are_believed() -> None:
    stranger = Client("198.51.100.1", 99)
    assert client("192.0.2.7", stranger) is stranger
    assert client(None) is PROXY
    assert client("192.0.2.7", Client("")).host == "192.0.2.7"  # a Unix socket
    assert client("192.0.2.7", Client("::ffff:10.0.0.1", 4711)).host == "192.0.2.7"
    assert client("192.0.2.7", Client("gone")) == Client("gone")
    assert str(client("192.0.2.7")) == "192.0.2.7"


@pytest.mark.parametrize("pieces", [1, 2])
def test_who_is_refused(pieces: int) -> None:
    """Each request through one connection of a proxy has its own client, also one that is refused by its head; one of
    which no head has arrived comes from the proxy."""
    node = InMemoryNode(publish_keys=("a-key-that-is-long-enough",))
    proxies = TrustedProxies(["127.0.0.1"], "X-Forwarded-For")
    server = InMemoryServer(RequestLog(node.api, node.clock), clock=node.clock, proxies=proxies)

    def told(text: bytes) -> list[str]:
        """What is logged of these bytes, after a request of another client."""
        connection = server.connect()
        connection.send(get(b"/healthz", b"X-Forwarded-For: 192.0.2.1\r\n"))
        with logged_at("info") as lines:
            size = len(text) // pieces
            for begin in range(0, len(text), size):
                connection.send(text[begin : begin + size])
        return [line.partition(": ")[0] for line in lines]

    head = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.2\r\nContent-Length: 2\r\n"
    assert told(head + b"\r\n{}") == ["refused a request from 192.0.2.2"]
    assert told(head + b"Authorization: Bearer wrong\r\n\r\n{}") == ["refused a request from 192.0.2.2"]
    assert told(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03") == ["refused a request from 127.0.0.1:50000"]


@given(st.text(st.characters(max_codepoint=255), max_size=80), st.booleans())
def test_any_text(value: str, rfc: bool) -> None:
    """Whatever is written there, there is a client, and its host is an address."""
    ip_address(client(value, rfc=rfc).host)


def test_a_mistake_is_told() -> None:
    with pytest.raises(ValueError, match="host bits"):
        TrustedProxies(("10.0.0.1/8",), "Forwarded")
