"""The parser against the request smuggling vectors: each is refused, or read in the only correct way."""

from __future__ import annotations

import pytest

from pushup.net.http1 import RequestParser
from pushup.net.http_errors import problem_type
from tests.net.parser_readings import AMPLE, read
from tests.net.smuggling_vectors import LAST, READ, REFUSED, SMUGGLED, chunked, post


def in_bytes(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_refused(name: str) -> None:
    """It gets a 4xx, and neither it nor the bytes after it are read as a request."""
    for parts in ([REFUSED[name] + SMUGGLED], [REFUSED[name], SMUGGLED], in_bytes(REFUSED[name] + SMUGGLED)):
        requests, error, _ = read(parts, AMPLE)
        assert error is not None
        assert 400 <= problem_type(error).status < 500
        assert requests == []


@pytest.mark.parametrize(
    "before",
    [
        post(b"Content-Length: 7", b'{"a":1}'),
        post(b"Content-Length: 7", b"a  \nb  "),
        chunked(b"3\r\nabc\r\n0\r\n\r\n"),
    ],
    ids=["Content-Length", "lines", "chunked"],
)
@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_refused_behind_a_body(name: str, before: bytes) -> None:
    """It is the same whether the bytes of its first line come alone, or behind those of another request's body."""
    data = REFUSED[name] + SMUGGLED
    cuts = [[before[:-size], before[-size:] + data] for size in (2, 5)]
    for parts in ([before + data], [before, data], *cuts, in_bytes(before + data)):
        requests, error, _ = read(parts, AMPLE)
        assert error is not None
        assert [target for _, target, *_ in requests] == [b"/"]


@pytest.mark.parametrize("name", READ)
def test_an_unusual_but_unambiguous_request_is_read(name: str) -> None:
    """It is read as RFC 9112 says, and the next request begins right after it."""
    data, expected = READ[name]
    for parts in ([data + SMUGGLED], [data, SMUGGLED], in_bytes(data + SMUGGLED)):
        requests, error, _ = read(parts, AMPLE)
        assert error is None
        assert [body for *_, body in requests] == [expected, b""]
        assert requests[1][1] == b"/smuggled"


def test_a_refused_request_leaves_those_before_it() -> None:
    good = post(b"Content-Length: 3", b"abc")
    requests, error, _ = read([good + good + REFUSED["CL and TE"] + good], AMPLE)
    assert [body for *_, body in requests] == [b"abc", b"abc"]
    assert error is not None


def test_trailers_are_not_headers() -> None:
    trailer = b"3\r\nabc\r\n0\r\nAuthorization: Bearer stolen\r\nX-Last: y\r\n\r\n"
    for parts in ([chunked(trailer) + SMUGGLED], in_bytes(chunked(trailer) + SMUGGLED)):
        requests, error, _ = read(parts, AMPLE)
        assert error is None
        assert [sorted(headers) for _, _, headers, *_ in requests] == [[b"host", b"transfer-encoding"], [b"host"]]


@pytest.mark.parametrize("name", LAST)
def test_nothing_is_read_after_a_last_request(name: str) -> None:
    """A request that ends its connection is read; the bytes after it are neither read nor an error, however split."""
    data = LAST[name]
    for after in (SMUGGLED, b"\r\n" + SMUGGLED, LAST["websocket"], REFUSED["Host missing"], b"\x00"):
        for parts in ([data + after], [data, after], [data[:-1], data[-1:] + after], in_bytes(data + after)):
            parser = RequestParser(AMPLE)
            requests = [request for part in parts for request in parser.feed(part)]
            assert [(request.target, request.keep_alive) for request in requests] == [(b"/", False)]
            assert requests[0].body == (b"abc" if b"abc" in data else b"")
            assert parser.ended


@pytest.mark.parametrize(
    "length", [b"Content-Length: 3", b"Transfer-Encoding: chunked"], ids=["Content-Length", "chunked"]
)
def test_an_upgrade_request_keeps_its_body(length: bytes) -> None:
    """A POST that offers h2c, as sent by Java's HttpClient and `curl --http2`, keeps its body (RFC 9110 §7.8)."""
    body = b"abc" if length.startswith(b"Content") else b"3\r\nabc\r\n0\r\n\r\n"
    data = post(
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n" + length, body
    )
    for parts in ([data], in_bytes(data)):
        requests, error, _ = read(parts, AMPLE)
        assert error is None
        assert [body for *_, body in requests] == [b"abc"]
