"""Whom a request comes from, behind proxies that are trusted, and those that are not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.net.application_interface import Client
from pushup.net.proxies import HOPS_LIMIT, TrustedProxies
from pushup.net.requests_and_responses import Request

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
    assert client("192.0.2.7", Client("gone")) == Client("gone")
    assert str(client("192.0.2.7")) == "192.0.2.7"


@given(st.text(st.characters(max_codepoint=255), max_size=80), st.booleans())
def test_any_text(value: str, rfc: bool) -> None:
    """Whatever is written there, there is a client, and its host is an address."""
    ip_address(client(value, rfc=rfc).host)


def test_a_mistake_is_told() -> None:
    with pytest.raises(ValueError, match="host bits"):
        TrustedProxies(("10.0.0.1/8",), "Forwarded")
