"""What is remembered of requests is bounded in bytes, however large and however different they are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from gc import collect

import pytest

from pushup.net.api.poll_parameters import REMEMBERED_BYTES, REMEMBERED_WITHOUT_CURSOR_BYTES, PollReader
from pushup.net.api.schemas import PollLimits
from pushup.net.requests_and_responses import Request
from tests.net.in_memory_node import InMemoryNode, RecordingExchange

BUDGET = REMEMBERED_WITHOUT_CURSOR_BYTES + 4 * REMEMBERED_BYTES
"""Of all polls: query strings and selections, those of streams as well."""

FILL = b"x" * 7000
EMOJI = "\N{GRINNING FACE}".encode()
NAMES = b"&".join(b"channel=%%F0%%9F%%98%%80%d%s" % (n, b"x" * 220) for n in range(25))
NAMES_IN_JSON = b",".join(b'"%b%d%b"' % (EMOJI, n, b"x" * 240) for n in range(99))


def get(target: bytes, **headers: bytes) -> Request:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(b"GET", target, fields, keep_alive=True)


def stream(**headers: bytes) -> Request:
    """Only the head of a stream."""
    request = get(b"/v1/events?channel=a", **headers)
    request.method = b"HEAD"
    return request


class Readers:
    """Those of polls and of streams, and the node that answers all other requests."""

    def __init__(self) -> None:
        self.polls = PollReader(PollLimits())
        self.streams = PollReader(PollLimits(), for_streams=True)
        self.node = InMemoryNode(hosts=())

    def ask(self, request: Request) -> None:
        self.node.api(request, RecordingExchange())


POLLS: dict[str, tuple[bytes, Callable[[Readers, bytes], object]]] = {
    "query": (b"cursor=now&channel=a&_=" + FILL, lambda readers, query: readers.polls.from_query(query)),
    "without a cursor": (b"channel=a&_=" + FILL, lambda readers, query: readers.polls.from_query(query)),
    "small": (b"cursor=e-1&channel=" + b"c" * 100, lambda readers, query: readers.polls.from_query(query)),
    "channels": (b"cursor=now&%b" % NAMES, lambda readers, query: readers.polls.from_query(query)),
    "JSON": (b'"channels":[%b,"' % NAMES_IN_JSON, lambda readers, part: readers.polls.from_body(b'{%b"]}' % part)),
    "stream": (b"channel=a&cursor=now&_=" + FILL, lambda readers, query: readers.streams.from_query(query)),
    "raw": (b"channel=a&format=raw&_=" + FILL, lambda readers, query: readers.streams.stream_from_query(query)),
    "channels of a stream": (NAMES, lambda readers, query: readers.streams.from_query(query)),
}
"""The beginnings of polls, and what reads them with another end."""


@pytest.mark.parametrize("name", POLLS)
def test_different_polls_leave_no_more_than_the_budget(name: str) -> None:
    """However many different ones arrive, and however large they are."""
    begin, read = POLLS[name]
    readers = Readers()
    count = 1 + 3 * BUDGET // (2 * (len(begin) + 500))
    assert _peak(lambda number: read(readers, begin + number), count) < BUDGET


FILLED: dict[str, Callable[[bytes], Request]] = {
    "parameter": lambda text: get(b"/v1/poll?channel=a&%b=1" % text),
    "field": lambda text: Request(b"POST", b"/v1/messages", {}, True, b'{"%b":1}' % (text * 20)),
    "path": lambda text: get(b"/" + text),
    "Host": lambda text: get(b"/healthz", host=text + b".localhost"),
    "Accept": lambda text: stream(accept=b"a/" + text),
    "Last-Event-ID": lambda text: stream(last_event_id=text),
    "Origin": lambda text: Request(b"POST", b"/v1/messages", {b"origin": text, b"host": b"a"}, True, b"{}"),
    "Idempotency-Key": lambda text: Request(b"POST", b"/v1/messages", {b"idempotency-key": text}, True, b"{}"),
    "If-None-Match": lambda text: get(b"/v1/pushup.js", if_none_match=text),
}


@pytest.mark.parametrize("name", FILLED)
def test_of_other_text_next_to_nothing_is_left(name: str) -> None:
    """Neither unknown names nor header fields are remembered, but for a few short ones."""
    readers, request = Readers(), FILLED[name]
    readers.ask(request(b"first"))
    assert _peak(lambda number: readers.ask(request(number + FILL)), 100) < 100_000


def _peak(send: Callable[[bytes], object], count: int) -> int:
    """The most memory that is in use after one of this many different requests."""
    peak = 0
    collect()
    tracemalloc.start()
    try:
        for number in range(count):
            send(b"%d" % number)
            peak = max(peak, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return peak


def test_polls_of_five_thousand_channels_are_remembered() -> None:
    """If each client polls a channel of its own, only their cursors are read."""
    reader = PollReader(PollLimits())
    queries = [b"channel=channel-%d&timeout=60&cursor=1a1fb671887c0-%%d" % n for n in range(5_000)]
    first = [reader.from_query(query % 1).selection for query in queries]
    assert all(reader.from_query(query % 2).selection is first[n] for n, query in enumerate(queries))
