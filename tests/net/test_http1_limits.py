"""The request parser: everything that can grow has a limit, and nothing is kept between two requests."""

from __future__ import annotations

import tracemalloc

import pytest

from pushup.core.errors import PushUpError
from pushup.net.edge_limits import RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import HeadersTooLarge, RequestTooLarge, TargetTooLong
from tests.net.parser_readings import AMPLE, GET, SMALL, read


def _in_parts(data: bytes, size: int = 7) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("fits", "too_much", "error"),
    [
        (b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * 29), b"GET /%b" % (b"x" * 30), TargetTooLong),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"y" * 80),
         b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"y" * 120), HeadersTooLarge),
        (b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % b"".join(b"X%d: y\r\n" % n for n in range(12)),
         b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % (b"X: y\r\n" * 40), HeadersTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n%b" % (b"z" * 40),
         b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n\r\n", RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n%b\r\n0\r\n\r\n" % (b"z" * 40),
         b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n%b" % (b"z" * 41), RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (b"a\r\n0123456789\r\n" * 4),
         b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (b"a\r\n0123456789\r\n" * 5),
         RequestTooLarge),
    ],
    ids=["target", "one header", "many headers", "Content-Length", "one chunk", "many chunks"],
)  # fmt: skip
def test_limits(fits: bytes, too_much: bytes, error: type[PushUpError]) -> None:
    """A request at a limit is accepted and one beyond it refused with its status, in one part or in many."""
    for data in ([fits], _in_parts(fits)):
        reading = read(data, SMALL)
        assert (len(reading.requests), reading.error) == (1, None)
    for data in ([too_much], _in_parts(too_much)):
        assert read(data, SMALL).error is error


@pytest.mark.parametrize(
    ("start", "more", "error"),
    [
        (b"GET /", b"x", TargetTooLong),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"y", HeadersTooLarge),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX:", b" ", HeadersTooLarge),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"y", HeadersTooLarge),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n", HeadersTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"0", RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x", RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", RequestTooLarge),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"y", RequestTooLarge),
    ],
    ids=[
        "target",
        "value",
        "white space",
        "name",
        "headers",
        "chunks",
        "chunk size",
        "extension",
        "trailers",
        "trailer",
    ],
)
def test_nothing_is_endless(start: bytes, more: bytes, error: type[PushUpError]) -> None:
    """An endless request is refused once a few times its limit has arrived."""
    limits = SMALL
    parser = RequestParser(limits)
    parser.feed(start)
    fed = 0

    def feed_on() -> None:
        nonlocal fed
        while fed < 10_000:
            fed += len(more)
            assert parser.feed(more) == []

    with pytest.raises(error):
        feed_on()
    assert fed <= limits.header_limit_bytes + 6 * limits.body_limit_bytes


def test_a_body_of_many_small_chunks_takes_no_more_than_one_of_few() -> None:
    """However small the parts of a body, only its bytes are kept."""
    parser = RequestParser(RequestLimits())
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    tracemalloc.start()
    try:
        for _ in range(1000):
            parser.feed(b"2\r\nab\r\n" * 50)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * 100_000
    (request,) = parser.feed(b"0\r\n\r\n")
    assert request.body == b"ab" * 50_000


def test_a_parser_is_reused() -> None:
    """Between two requests a parser keeps neither headers nor body nor expectations."""
    parser = RequestParser(AMPLE)
    (first,) = parser.feed(
        b"POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"
    )
    assert parser.idle
    assert not parser.wants_continue
    (second,) = parser.feed(GET)
    assert (second.method, second.target, second.headers, second.body) == (b"GET", b"/", {b"host": b"a"}, b"")
    assert (first.body, first.header(b"authorization")) == (b"abc", "x")
    assert parser.idle


def test_expectations() -> None:
    """A client waits for `100 Continue` until its body begins; with HTTP/1.0 it never does."""
    head = b"POST / HTTP/1.%d\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
    for version, waits in ((1, [True, False, False]), (0, [False, False, False])):
        parser = RequestParser(AMPLE)
        seen = []
        for part in (head % version, b"a", b"b"):
            parser.feed(part)
            seen.append(parser.wants_continue)
        assert seen == waits


def test_repeated_fields_are_joined() -> None:
    """The values of a repeated field are joined, unless it would be ambiguous which one counts."""
    (request,) = RequestParser(AMPLE).feed(b"GET / HTTP/1.1\r\nHost: a\r\nAccept: x\r\nACCEPT: y\r\n\r\n")
    assert request.headers[b"accept"] == b"x, y"
    for name in (b"Authorization", b"Idempotency-Key", b"Origin"):
        twice = b"GET / HTTP/1.1\r\nHost: a\r\n%b: x\r\n%b: x\r\n\r\n" % (name, name)
        assert read([twice], AMPLE).error is not None


def test_repeated_fields_each_count() -> None:
    """Fields of the same name count against the limit just as fields of different names do."""
    lines = b"".join(b"X-Forwarded-For: %b\r\n" % (b"1" * 40) for _ in range(40))
    reading = read([b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % lines], AMPLE)
    assert len(lines) < AMPLE.header_limit_bytes / 4
    assert (len(reading.requests), reading.error) == (1, None)
