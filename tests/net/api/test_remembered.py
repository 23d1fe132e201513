"""What is remembered of requests is bounded in bytes, however large and however different they are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from gc import collect

import pytest

from pushup.net.api.limits import PollLimits
from pushup.net.api.poll_parameters import REMEMBERED_BYTES, REMEMBERED_WITHOUT_CURSOR_BYTES, PollReader
from pushup.net.request import Request
from tests.net.in_memory_node import InMemoryNode, RecordingExchange

BUDGET = REMEMBERED_WITHOUT_CURSOR_BYTES + 4 * REMEMBERED_BYTES
"""Of all polls: query strings and selections, those of streams as well."""

SENT = 1.5 * BUDGET
"""Bytes of different requests of one kind."""

FILL = b"x" * 7000
EMOJI = "\N{GRINNING FACE}".encode()
NAMES = b"&".join(b"channel=%%F0%%9F%%98%%80%d%s" % (n, b"x" * 220) for n in range(12))
NAMES_IN_JSON = b",".join(b'"%b%d%b"' % (EMOJI, n, b"x" * 240) for n in range(99))


def get(target: bytes, **headers: bytes) -> Request:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(b"GET", target, fields, keep_alive=True)


def stream(target: bytes, **headers: bytes) -> Request:
    """Only the head of a stream."""
    request = get(target, **headers)
    request.method = b"HEAD"
    return request


def post(path: bytes, body: bytes) -> Request:
    return Request(b"POST", path, {}, keep_alive=True, body=body)


POLLS = ("query", "query without a cursor", "small query", "channels", "channels in JSON", "query of a stream",
         "channels of a stream")  # fmt: skip
"""Those that the budget is for."""

REQUESTS: dict[str, Callable[[bytes], Request]] = {
    "query": lambda n: get(b"/v1/poll?channel=a&timeout=0&_=%b%b&cursor=now" % (n, FILL)),
    "query without a cursor": lambda n: get(b"/v1/poll?channel=a&timeout=0&_=%b%b" % (n, FILL)),
    "small query": lambda n: get(b"/v1/poll?timeout=0&cursor=e-1&channel=" + n),
    "channels": lambda n: get(b"/v1/poll?timeout=0&channel=%b&%b&cursor=now" % (n, NAMES)),
    "channels in JSON": lambda n: post(b"/v1/poll", b'{"timeout":0,"channels":["%b",%b]}' % (n, NAMES_IN_JSON)),
    "query of a stream": lambda n: stream(b"/v1/events?channel=a&_=%b%b&cursor=now" % (n, FILL)),
    "channels of a stream": lambda n: stream(b"/v1/events?channel=%b&%b" % (n, NAMES)),
    "unknown parameter": lambda n: get(b"/v1/poll?channel=a&%b%b=1" % (n, FILL)),
    "unknown field": lambda n: post(b"/v1/messages", b'{"%b%b":1}' % (n, FILL * 100)),
    "unknown path": lambda n: get(b"/%b%b" % (n, FILL)),
    "Host": lambda n: get(b"/healthz", host=b"%b%b.localhost" % (n, FILL)),
    "Accept": lambda n: stream(b"/v1/events?channel=a", accept=b"%b/%b" % (n, FILL)),
    "Last-Event-ID": lambda n: stream(b"/v1/events?channel=a", last_event_id=n + FILL),
    "Origin": lambda n: Request(b"POST", b"/v1/messages", {b"origin": n + FILL, b"host": b"a"}, True, b"{}"),
    "Idempotency-Key": lambda n: Request(b"POST", b"/v1/messages", {b"idempotency-key": n + FILL}, True, b"{}"),
    "If-None-Match": lambda n: get(b"/v1/pushup.js", if_none_match=n + FILL),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_different_requests_leave_no_more_than_the_budget(name: str) -> None:
    """However much different text arrives, what is kept of polls stays in their budget; of the rest, nearly nothing."""
    node = InMemoryNode(hosts=())
    request = REQUESTS[name]
    sent = count = peak = 0
    node.api(request(b"first"), RecordingExchange())
    collect()
    tracemalloc.start()
    try:
        while sent < SENT and count < 13_500:
            asked = request(b"%d" % count)
            node.api(asked, RecordingExchange())
            sent, count = sent + asked.size, count + 1
            del asked
            peak = max(peak, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert peak < (BUDGET if name in POLLS else BUDGET / 32), (peak, count)


def test_polls_of_ten_thousand_channels_are_remembered() -> None:
    """If each client polls a channel of its own, only their cursors are read."""
    reader = PollReader(PollLimits())
    queries = [b"channel=channel-%d&timeout=60&cursor=1a1fb671887c0-%%d" % n for n in range(10_000)]
    first = [reader.from_query(query % 1).selection for query in queries]
    assert all(reader.from_query(query % 2).selection is first[n] for n, query in enumerate(queries))
