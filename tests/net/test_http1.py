"""The request parser reads what was sent, however the bytes are split."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pushup.core.errors import PushUpError
from pushup.net.http1 import RequestParser
from pushup.net.http_errors import HeadersTooLarge, RequestTooLarge
from tests.net.parser_readings import AMPLE, GET, SMALL, cut, knowing, pieces, read
from tests.net.smuggling_vectors import LAST, READ, REFUSED

quick = settings(max_examples=600, deadline=None, database=None, derandomize=True)


_lines = st.sampled_from(
    (b"GET / HTTP/1.1", b"POST /a?b HTTP/1.1", b"GET / HTTP/1.0",
     b"HEAD * HTTP/1.1", b"GET /" + b"x" * 29 + b" HTTP/1.1",
     b"GET  / HTTP/1.1", b"POST /a  HTTP/1.1", b"GET http://a HTTP/1.1", b"GET http://b/ HTTP/1.0",
     b"GET /", b"GET / HTTP/2.0", b"CONNECT a:1 HTTP/1.1", b"PRI * HTTP/2.0", b"")
)  # fmt: skip
_fields = st.sampled_from(
    (b"Host: a", b"Content-Length: 3", b"Content-Length: 41", b"Content-Length:", b"Transfer-Encoding: chunked",
     b"X: y", b"Transfer-Encoding: gzip", b"Connection: close", b"Connection: keep-alive",
     b"Expect: 100-continue", b"Expect: x",
     b"Upgrade: h2c", b"Connection: upgrade", b"Y:" + b" " * 50 + b"z", b"Z: " + b"z" * 90, b"Host : b", b" folded",
     b"E:", b"A  : b", b"X: A  H")
)  # fmt: skip
_bodies = st.sampled_from(
    (b"", b"abc", b"abcdef", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n", b"3;e=f\r\nabc\r\n0\r\nT: t\r\n\r\n",
     b"29\r\n" + b"y" * 41,
     b"A  ", b"A  GET / HTTP/1.1\r\n", b"\r\nGET  / HTTP/1.1\r\n", b"G",
     b"3\r\nA  \r\n0\r\n\r\n", b"3\r\n  H\r\n0\r\n\r\n",
     b"1\r\na\r\n" * 41 + b"0\r\n\r\n", b"0\r\n" + b"T: t\r\n" * 60 + b"\r\n", b"3\nabc", b"\r\n",
     b"0\r\nConnection: close\r\n\r\n")
)  # fmt: skip
_requests = st.builds(
    lambda line, host, fields, body, end: line + end + end.join([*host, *fields, b"", b""]) + body,
    _lines,
    st.sampled_from(([b"Host: a"], [b"Host: a"], [b"Host: a"], [])),
    st.lists(_fields, max_size=3),
    _bodies,
    st.sampled_from((b"\r\n",) * 20 + (b"\n", b"\r")),
)
_with_a_body = st.builds(
    lambda body: b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), _bodies
)
_mutations = st.lists(
    st.tuples(
        st.integers(0, 400), st.sampled_from((b"", b"\r", b"\n", b" ", b"\t", b"\x00", b":", b"0", b"\xff", b"\r\n"))
    ),
    max_size=2,
)


@st.composite
def pipelines(draw: st.DrawFn) -> bytes:
    """Almost valid requests, one after another, with a few bytes changed."""
    data = b"".join(draw(st.lists(_requests | _with_a_body, min_size=1, max_size=4)))
    for place, new in draw(_mutations):
        data = data[:place] + new + data[place + 1 :]
    return data


_places = st.lists(st.integers(0, 2000), max_size=12)
_every_place = list(range(2000))
_keeps_alive = b"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n" + GET


@given(data=pipelines(), places=_places)
@example(data=READ["trailers"][0] + GET, places=_every_place)
@example(data=b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nGGET /  HTTP/1.1\r\nHost: a\r\n\r\n", places=[])
@example(data=REFUSED["CL and TE"], places=_every_place)
@example(data=_keeps_alive, places=_every_place)
@quick
def test_the_split_does_not_matter(data: bytes, places: list[int]) -> None:
    """However the bytes are split, and whatever came before, the requests and the error are the same."""
    whole = read([data], AMPLE)
    known = knowing(data, AMPLE)
    for parts in ([data], cut(data, places), cut(data, _every_place)):
        for split in (read(parts, AMPLE), read(parts, AMPLE, known)):
            assert (split.requests, split.error) == (whole.requests, whole.error)


@given(data=st.binary(max_size=200), places=_places)
@quick
def test_the_split_of_anything_does_not_matter(data: bytes, places: list[int]) -> None:
    whole = read([data], AMPLE)
    for parts in (cut(data, places), cut(data, _every_place)):
        split = read(parts, AMPLE)
        assert (split.requests, split.error) == (whole.requests, whole.error)


@given(data=pipelines(), places=_places)
@example(data=_keeps_alive, places=_every_place)
@quick
def test_the_split_hardly_matters_at_the_limits(data: bytes, places: list[int]) -> None:
    """Near the limits the split matters in one unavoidable case.

    llhttp buffers an unfinished field, chunk header or trailer, which can only be counted between two reads. So bytes
    that arrive in several reads may be refused as too large where the same bytes in one read are accepted (or refused a
    little later for another reason); never before they exceed the limit, and never the other way round.
    """
    whole = read([data], SMALL)
    for parts in (cut(data, places), cut(data, _every_place)):
        split = read(parts, SMALL)
        if (split.requests, split.error) != (whole.requests, whole.error):
            assert split.error in (HeadersTooLarge, RequestTooLarge)
            assert split.requests == whole.requests[: len(split.requests)]
            assert split.late > SMALL.header_limit_bytes


@given(data=pipelines())
@example(data=LAST["b'Connection: close' as a trailer of b'0\\r\\n'"])
@quick
def test_an_idle_parser_is_like_new(data: bytes) -> None:
    """Whatever a parser has read, once it is idle and has not ended it can read another connection's request."""
    parser = RequestParser(AMPLE)
    try:
        parser.feed(data)
    except PushUpError:
        return
    if parser.idle and not parser.ended:
        (request,) = parser.feed(GET)
        assert (request.headers, request.keep_alive, request.body) == ({b"host": b"a"}, True, b"")


_names = st.sampled_from((b"Accept", b"cookie", b"X-1", b"Content-Type"))
_values = st.binary(max_size=20).map(lambda b: bytes(c for c in b if 32 < c < 127))
_sound = st.tuples(
    st.sampled_from((b"GET", b"POST", b"DELETE", b"HEAD", b"OPTIONS")),
    st.text("abc/%?&=+.~", max_size=20).map(lambda text: b"/" + text.encode()),
    st.dictionaries(_names, _values, max_size=3),
    st.none() | st.binary(max_size=60),
    st.lists(st.integers(1, 9), max_size=9),
)


def _write(
    method: bytes, target: bytes, fields: dict[bytes, bytes], body: bytes | None, chunks: list[int]
) -> tuple[bytes, dict[bytes, bytes]]:
    """A request as RFC 9112 defines it, chunked if there are chunk sizes; and the headers that must be read from it."""
    fields = {b"Host": b"a:1", **fields}
    content = b""
    if body is not None and chunks:
        fields[b"Transfer-Encoding"] = b"chunked"
        rest = body
        for size in chunks:
            piece, rest = rest[:size], rest[size:]
            content += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        content += (b"%X;last\r\n%b\r\n" % (len(rest), rest) if rest else b"") + b"0\r\n\r\n"
    elif body is not None:
        fields[b"Content-Length"] = b"%d" % len(body)
        content = body
    head = b"".join(b"%b: %b\r\n" % field for field in fields.items())
    headers = {name.lower(): value for name, value in fields.items()}
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, head, content), headers


@given(sound=st.lists(_sound, max_size=5), places=_places)
@quick
def test_valid_requests_are_read_as_sent(
    sound: list[tuple[bytes, bytes, dict[bytes, bytes], bytes | None, list[int]]], places: list[int]
) -> None:
    written = [_write(*request) for request in sound]
    split = read(cut(b"".join(data for data, _ in written), places), AMPLE)
    assert split.error is None
    assert split.requests == [
        (method, target, headers, True, body or b"")
        for (method, target, _, body, _), (_, headers) in zip(sound, written, strict=True)
    ]


@pytest.mark.parametrize("line", [b"  \n", b"X  y\r\n", b"  HTTP/1.1\r\n", b"A  / HTTP/1.1\r\n"])
def test_lines_with_two_spaces_are_read_together(line: bytes) -> None:
    """Two spaces in a field or chunk cost no more than other bytes: llhttp reads up to an empty line at once."""
    assert len(pieces(line * 1000)) == 2


def test_a_request_line_is_read_by_itself() -> None:
    """It may come behind an empty line: llhttp cannot be asked later what was in it."""
    assert pieces(b"a\r\nb  c\r\n\r\nd  e\r\n\n\nf") == [b"a\r\n", b"b  c\r\n\r\n", b"d  e\r\n\n\n", b"f"]
    assert pieces(b"0\r\n\r\nd  e") == [b"0\r\n", b"\r\n", b"d  e"]
    line = b"GET  / HTTP/1.1\r\n"
    assert pieces(b"\r\n\n" + line + b"Host", is_idle=True) == [b"\r\n\n", line, b"Host"]
