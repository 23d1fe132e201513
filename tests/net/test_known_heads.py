"""Requests with known heads: they are read as llhttp reads them, which is what decides everything else."""

from __future__ import annotations

import tracemalloc
from gc import get_referents

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushup.core.errors import BadRequest, PushUpError
from pushup.net.edge_limits import RequestLimits
from pushup.net.http1 import RequestParser
from pushup.net.known_heads import HEAD_LIMIT_BYTES, MEMORY_LIMIT_BYTES, KnownHeads
from pushup.net.pipeline import READ_BYTES
from pushup.net.requests_and_responses import Request
from tests.net.parser_readings import knowing as knowing_pieces
from tests.net.parser_readings import read as read_pieces
from tests.net.smuggling_vectors import SMUGGLED

LIMITS = RequestLimits()
FIELDS = b"Host: a\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nCookie: session=1"


def get(target: bytes, fields: bytes = FIELDS) -> bytes:
    return b"GET %b HTTP/1.1\r\n%b\r\n\r\n" % (target, fields)


def post(body: bytes, target: bytes = b"/v1/messages") -> bytes:
    return b"POST %b HTTP/1.1\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (target, FIELDS, len(body), body)


def read(data: bytes, known: KnownHeads, limits: RequestLimits = LIMITS) -> list[object]:
    """What a new parser makes of this, for comparison: its requests, an error, and whether it waits for more."""
    parser = RequestParser(limits, known=known)
    try:
        requests = parser.feed(data)
    except PushUpError as error:
        return [*map(fields, parser.requests), type(error), str(error)]
    return [*map(fields, requests), parser.idle, parser.ended, parser.wants_continue]


def fields(request: Request) -> tuple[object, ...]:
    return (request.method, request.target, request.headers, request.keep_alive, request.body, request.is_1_0)


def knowing(*before: bytes, limits: RequestLimits = LIMITS) -> KnownHeads:
    """What is remembered after these requests."""
    known = KnownHeads(limits)
    for data in before:
        read(data, known, limits)
    return known


def test_another_target_or_body() -> None:
    """All that may differ: the target, and a body of the same length."""
    known = knowing(get(b"/v1/poll?cursor=1-1"), post(b"abc"))
    found = known.find(get(b"/v1/poll?channel=c%2B%2B&cursor=1-2"))
    assert found is not None
    assert (found.method, found.target, found.body) == (b"GET", b"/v1/poll?channel=c%2B%2B&cursor=1-2", b"")
    assert found.headers == {b"host": b"a", b"user-agent": b"Mozilla/5.0", b"accept": b"*/*", b"cookie": b"session=1"}
    found = known.find(post(b"xyz", b"/v1/poll"))
    assert found is not None
    assert (found.method, found.target, found.body, found.keep_alive) == (b"POST", b"/v1/poll", b"xyz", True)


@pytest.mark.parametrize(
    "data",
    [
        get(b"/"),
        get(b"/", FIELDS + b"\r\nConnection: Keep-Alive"),
        post(b""),
    ],
)
def test_what_is_remembered(data: bytes) -> None:
    assert knowing(data).find(data) is not None


@pytest.mark.parametrize(
    "data",
    [
        get(b"/").replace(b"1.1", b"1.0"),
        get(b"/").replace(b"GET", b"HEAD"),
        get(b"http://a/"),
        get(b"/", FIELDS + b"\r\nConnection: close"),
        get(b"/", FIELDS + b"\r\nProxy-Connection: close"),
        get(b"/", FIELDS + b"\r\nConnection: upgrade\r\nUpgrade: websocket"),
        get(b"/", FIELDS + b"\r\nAccept: text/html"),
        get(b"/", FIELDS + b"\r\nLast-Event-ID: e-1"),
        post(b"abc").replace(b"Host", b"Idempotency-Key: 1\r\nHost"),
        post(b"abc").replace(b"Host", b"Traceparent: 1\r\nHost"),
        get(b"/", FIELDS + b"\r\nX: " + bytes(HEAD_LIMIT_BYTES).replace(b"\0", b"x")),
        b"\r\n" + get(b"/"),
        get(b"/") + get(b"/"),
        post(b"abc").replace(b"Content-Length: 3", b"Expect: 100-continue\r\nContent-Length: 3"),
        post(b"3\r\nabc\r\n0\r\n\r\n").replace(b"Content-Length: 13", b"Transfer-Encoding: chunked"),
    ],
)
def test_what_is_not_remembered(data: bytes) -> None:
    """Whatever is more than one usual request; llhttp reads it each time."""
    assert knowing(data).find(data) is None


@pytest.mark.parametrize(
    "data",
    [
        get(b"/\xc3\xa9"),
        get(b"/a b"),
        get(b"/\t"),
        get(b"/#a"),
        get(b"/\\"),
        get(b"//a"),
        get(b"a"),
        get(b"*"),
        get(b"/%"),
        get(b"/").replace(b" HTTP/1.1", b"  HTTP/1.1"),
        get(b"/").replace(b"1.1\r\n", b"1.1 \r\n"),
        get(b"/").replace(b"GET ", b"GET\t"),
        get(b"/").replace(b"1.1", b"1.2"),
        get(b"/").replace(b"HTTP", b"http"),
        get(b"/").replace(b" HTTP/1.1", b""),
        get(b" / "),
        get(b"/").replace(b"GET", b"POST"),
        get(b"/").replace(b"GET", b"PUT"),
        get(b"/").replace(b"GET", b"get"),
        get(b"/")[:-1],
        get(b"/")[:-2],
        get(b"/") + b"\r",
        get(b"/") + b"x",
        get(b"/") + get(b"/"),
        get(b"/").replace(b"\r\n", b"\n"),
        get(b"/") + SMUGGLED,
        post(b"abc") + SMUGGLED,
        post(b"abc")[:-1],
        post(b"abc") + b"d",
        post(b"abc").replace(b": 3", b": 4"),
        post(b"abc").replace(b"POST", b"GET"),
        get(b"/x HTTP/1.1\r\nX: "),
        get(b"/" + b"x" * 9000),
        b"",
        b"\r\n",
        b"\r\n\r\n",
    ],
)
def test_what_looks_like_a_known_head(data: bytes) -> None:
    """It is read as if nothing were known."""
    known = knowing(get(b"/"), get(b"/", b""), post(b"abc"), post(b""))
    assert read(data, known) == read(data, KnownHeads(LIMITS))


@pytest.mark.parametrize("size", range(READ_BYTES - 3, READ_BYTES + 6))
def test_a_head_of_one_read(size: int) -> None:
    """A head that fills the first read, or is up to five bytes longer, is read whole: its last field counts."""
    fields = b"Host: a\r\nX: %b\r\nAuthorization: Bearer 0123456789abcdef"
    data = get(b"/", fields % (b"x" * (size - len(get(b"/", fields % b"")))))
    assert len(data) == size
    known = knowing_pieces(data, LIMITS)
    reading = read_pieces([data[:READ_BYTES], data[READ_BYTES:]], LIMITS, known)
    assert [request[2].get(b"authorization") for request in reading.requests] == [b"Bearer 0123456789abcdef"]


SECRETS = {
    b"Authorization": b"Bearer s3cr3t",
    b"Cookie": b"session=s3cr3t; a=b",
    b"PushUp-Ticket": b"s3cr3t",
    b"Referer": b"http://example.org/?key=s3cr3t",
    b"X-Forwarded-For": b"s3cr3t",
    b"X-Api-Key": b"s3cr3t",
}


@pytest.mark.parametrize("field", SECRETS)
def test_what_may_name_a_person_is_not_kept(field: bytes) -> None:
    """Not even for a moment: nothing that is remembered has a part of it, and its request is known all the same."""
    data = get(b"/", b"Host: a\r\n%b:  %b\r\nAccept: */*" % (field, SECRETS[field]))
    known = knowing(data)
    kept: list[object] = [known]
    seen: set[int] = set()
    while kept:
        thing = kept.pop()
        if id(thing) in seen or isinstance(thing, type | RequestLimits):
            continue
        seen.add(id(thing))
        assert not isinstance(thing, bytes) or b"s3cr3t" not in thing
        kept += get_referents(thing)
    assert len(seen) > 10
    found = known.find(data)
    assert found is not None
    assert found.headers[field.lower()] == SECRETS[field]


def test_each_client_keeps_its_own_fields() -> None:
    """Requests that differ only in a cookie of the same length, in any order."""
    clients = [
        get(b"/", FIELDS.replace(b"session=1", b"session=%d" % n) + b"\r\nAuthorization: %d" % n) for n in range(9)
    ]
    known = knowing(*clients)
    for data in (*clients, *reversed(clients)):
        assert known.find(data) is not None
        assert read(data, known) == read(data, KnownHeads(LIMITS))


_requests = st.sampled_from(
    [get(b"/v1/poll?channel=a&cursor=1-1"), post(b"abc"), post(b""), get(b"/", FIELDS + b"\r\nConnection: keep-alive")]
)
_bytes = st.sampled_from(
    [
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\0",
        b":",
        b"/",
        b"\xff",
        b"GET / HTTP/1.1\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0",
        b"x",
    ]
)


@given(data=_requests, place=st.floats(0, 1), length=st.integers(0, 3), instead=_bytes)
def test_a_request_with_a_change_is_read_the_same(data: bytes, place: float, length: int, instead: bytes) -> None:
    """Anywhere in it: it is what llhttp makes of it, the first time and when it comes again."""
    at = int(place * len(data))
    changed = data[:at] + instead + data[at + length :]
    expected = read(changed, KnownHeads(LIMITS))
    known = knowing(data)
    assert read(changed, known) == expected
    assert read(changed, known) == expected
    assert read(data, known) == read(data, KnownHeads(LIMITS))


@pytest.mark.parametrize("length", range(96, 108))
def test_limits_are_the_same(length: int) -> None:
    """Of the target, and of the header fields and the target together."""
    for limits in (RequestLimits(target_limit_bytes=100), RequestLimits(header_limit_bytes=len(FIELDS) + 2 + 100)):
        data = get(b"/" + b"x" * (length - 1))
        assert read(data, knowing(get(b"/"), limits=limits), limits) == read(data, KnownHeads(limits), limits)


def test_bodies_have_to_be_admitted_each_time() -> None:
    """A known head is no permission: what counts is what the application says now."""
    answers: list[int | PushUpError] = [3, 2, BadRequest("no")]

    def admit(request: Request) -> int:
        answer = answers[0]
        if isinstance(answer, PushUpError):
            raise answer
        return answer

    known = KnownHeads(LIMITS)
    for expected in ("", "exceeds 2 bytes", "no"):
        parser = RequestParser(LIMITS, admit, known)
        if expected:
            with pytest.raises(PushUpError, match=expected):
                parser.feed(post(b"abc"))
        else:
            assert len(parser.feed(post(b"abc"))) == 1
            assert known.find(post(b"abc")) is not None
        answers.pop(0)


def test_a_head_counts_once() -> None:
    """However often llhttp reads it again, because of a target that is not usual: it takes no other head's place."""
    known = KnownHeads(LIMITS)
    read(get(b"/"), known)
    for _ in range(MEMORY_LIMIT_BYTES // 2000):
        read(get(b"/|", FIELDS + b"\r\nX: %b" % bytes(1000).replace(b"\0", b"x")), known)
    assert known.find(get(b"/")) is not None


def test_memory_is_bounded() -> None:
    """Each client with a cookie of its own: what is remembered stays within the limit, and the newest is known."""
    known = KnownHeads(LIMITS)
    parser = RequestParser(LIMITS, known=known)
    tracemalloc.start()
    try:
        for number in range(8000):
            parser.feed(get(b"/", b"Host: a\r\nCookie: %0600d\r\nA: b\r\nC: d" % number))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * MEMORY_LIMIT_BYTES
    assert known.find(get(b"/x", b"Host: a\r\nCookie: %0600d\r\nA: b\r\nC: d" % 7999)) is not None
