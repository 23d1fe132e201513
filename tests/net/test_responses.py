"""Responses as bytes."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from pushup.core.answer import Answer, Gap, Received
from pushup.net.requests_and_responses import Response, ResponseOptions, ResponseWriter
from tests.net.in_memory_server import START, Reply, read_replies

EMPTY = Answer("e-7", (), False, (), ())


@pytest.fixture
def writer() -> ResponseWriter:
    writer = ResponseWriter()
    writer.set_time(START)
    return writer


def read(data: bytes, *, head: bool = False) -> Reply:
    (reply,) = read_replies(data, [0] if head else [])
    return reply


def test_an_answer(writer: ResponseWriter) -> None:
    """The answer to a poll is a 200 with JSON, a length and a date, and must not be cached."""
    message = Received("e-8", 1.5, ("a",), Raw(b'{"b": 1.10}'))
    reply = read(writer.answer(Answer("e-9", (message,), True, (Gap("a", "expired", "e-7"),), ("c",)), None))
    assert reply.status == 200
    assert reply.headers == {
        "content-type": "application/json",
        "content-length": str(len(reply.body)),
        "cache-control": "no-store",
        "date": "Fri, 15 Jan 2027 08:00:00 GMT",
    }
    assert json.loads(reply.body) == {
        "cursor": "e-9",
        "messages": [{"id": "e-8", "time": 1.5, "channels": ["a"], "data": {"b": 1.1}}],
        "more": True,
        "gaps": [{"channel": "a", "reason": "expired", "until": "e-7"}],
        "closed": ["c"],
    }
    assert b'{"b": 1.10}' in reply.body, "data is sent as it was written"


def test_head(writer: ResponseWriter) -> None:
    head, usual = ResponseOptions(head_only=True), None
    for data, whole in (
        (writer.answer(EMPTY, head), writer.answer(EMPTY, usual)),
        (writer.response(Response(200, b"abc"), head), writer.response(Response(200, b"abc"), usual)),
    ):
        assert data.endswith(b"\r\n\r\n")
        assert read(data, head=True).headers == read(whole).headers


@pytest.mark.parametrize("options", [None, ResponseOptions(close=True), ResponseOptions(head_only=True)])
def test_no_content(writer: ResponseWriter, options: ResponseOptions | None) -> None:
    """204 has neither body nor length nor type (RFC 9110 §8.6)."""
    data = writer.response(Response(204), options)
    assert data.endswith(b"\r\n\r\n")
    assert not {"content-length", "content-type"} & read(data).headers.keys()


def test_options(writer: ResponseWriter) -> None:
    options = ResponseOptions(close=True, headers=((b"Vary", b"Origin"),))
    for data in (writer.answer(EMPTY, options), writer.response(Response(200, b"{}"), options)):
        headers = read(data).headers
        assert (headers["connection"], headers["vary"]) == ("close", "Origin")
    assert "connection" not in read(writer.answer(EMPTY, None)).headers


def test_equal_answers_are_encoded_once(writer: ResponseWriter) -> None:
    close = ResponseOptions(close=True)
    first, closing = writer.answer(EMPTY, None), writer.answer(EMPTY, close)
    assert writer.answer(EMPTY, None) is first
    assert writer.answer(EMPTY, ResponseOptions(close=True)) is closing
    other = writer.answer(Answer("e-8", (), False, (), ()), None)
    assert json.loads(read(other).body)["cursor"] == "e-8"
    assert json.loads(read(writer.answer(EMPTY, None)).body)["cursor"] == "e-7"


def test_the_date_is_current(writer: ResponseWriter) -> None:
    """The Date is current, even in an answer or response that was encoded before."""
    for second, date in ((0, "Fri, 15 Jan 2027 08:00:00 GMT"), (1, "Fri, 15 Jan 2027 08:00:01 GMT")):
        writer.set_time(START + second)
        for data in (writer.answer(EMPTY, None), writer.response(Response(200), None)):
            assert read(data).headers["date"] == date


def test_content_type(writer: ResponseWriter) -> None:
    """Responses of the same status and different types do not share their first lines."""
    types = [read(writer.response(Response(200, b"x", t), None)).headers["content-type"] for t in (b"a/b", b"c/d")]
    assert types == ["a/b", "c/d"]
