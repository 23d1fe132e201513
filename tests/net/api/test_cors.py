"""Which web pages may use a server, and the CORS headers that tell their browsers."""

from __future__ import annotations

import pytest

from pushup.net.api.cors import Origins, preflight_headers
from pushup.net.api.request_log import RequestLog
from pushup.net.requests_and_responses import Header, Request
from tests.net.in_memory_node import InMemoryNode

PAGE, OTHER = b"https://app.example", b"https://evil.example"


def _request(**headers: bytes) -> Request:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(b"GET", b"/v1/poll", fields, keep_alive=True)


EXPOSED = (b"Access-Control-Expose-Headers", b"Retry-After")

ALLOWED: tuple[Header, ...] = (
    (b"Access-Control-Allow-Origin", PAGE),
    (b"Access-Control-Allow-Credentials", b"true"),
    EXPOSED,
    (b"Vary", b"Origin"),
)


@pytest.mark.parametrize(
    ("allowed", "origin", "headers"),
    [
        ((), None, ()),
        ((), PAGE, ()),
        (("https://app.example",), None, ()),
        (("https://app.example",), PAGE, ALLOWED),
        (("https://a.example", "https://app.example"), PAGE, ALLOWED),
        (("https://app.example",), OTHER, ((b"Vary", b"Origin"),)),
        (("https://app.example",), b"null", ((b"Vary", b"Origin"),)),
        (("https://app.example",), b"\xff", ((b"Vary", b"Origin"),)),
        (("*",), OTHER, ((b"Access-Control-Allow-Origin", b"*"), EXPOSED)),
        (("*",), None, ()),
    ],
)
def test_who_may_read(allowed: tuple[str, ...], origin: bytes | None, headers: tuple[Header, ...]) -> None:
    """An allowed page may read responses, with credentials unless all origins are allowed; `Vary` informs caches."""
    node = InMemoryNode(cors_origins=allowed)
    request = _request(origin=origin) if origin is not None else _request()
    assert Origins(frozenset(allowed)).response_headers(request) == headers
    assert node.api.headers_for(request) == headers
    assert RequestLog(node.api, node.clock).headers_for(request) == headers


@pytest.mark.parametrize(
    ("allowed", "origin", "host", "may"),
    [
        ((), None, b"localhost", True),
        ((), PAGE, b"localhost", False),
        ((), b"http://localhost:8080", b"localhost:8080", True),
        ((), b"https://localhost:8080", b"LOCALHOST:8080", True),
        ((), b"http://localhost", b"localhost:8080", False),
        ((), b"http://", b"", False),
        ((), b"null", b"localhost", False),
        (("https://app.example",), PAGE, b"localhost", True),
        (("https://app.example",), OTHER, b"localhost", False),
        (("*",), OTHER, b"localhost", True),
    ],
)
def test_who_may_publish(allowed: tuple[str, ...], origin: bytes | None, host: bytes, may: bool) -> None:
    """An allowed page, a page of this server, and clients that are not a page."""
    request = _request(host=host) if origin is None else _request(host=host, origin=origin)
    assert Origins(frozenset(allowed)).may_publish(request) == may


def test_preflights() -> None:
    """A preflight is answered with what the page may send; any other OPTIONS is not about CORS."""
    assert preflight_headers(_request(), b"POST, OPTIONS") == ()
    headers = dict(preflight_headers(_request(access_control_request_method=b"POST"), b"POST, OPTIONS"))
    assert headers[b"Access-Control-Allow-Methods"] == b"POST, OPTIONS"
    allowed = set(headers[b"Access-Control-Allow-Headers"].split(b", "))
    assert allowed == {
        b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"pushup-ticket", b"traceparent",
        b"tracestate",
    }  # fmt: skip
    assert int(headers[b"Access-Control-Max-Age"]) > 0
