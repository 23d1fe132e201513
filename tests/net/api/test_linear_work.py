"""What a client sends is read in time proportional to its size, whatever it is: no request stops the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from time import thread_time

import pytest

from pushup.backends.tickets import Tickets
from pushup.core.cursor import parse_cursor
from pushup.core.errors import PushUpError
from pushup.net.api.bodies import check_name
from pushup.net.api.channel_routes import read_create, read_renew
from pushup.net.api.erasing import read_erase
from pushup.net.api.event_encoding import EventEncodings
from pushup.net.api.poll_parameters import PollReader
from pushup.net.api.publishing import read_publication
from pushup.net.api.request_log import shown_target
from pushup.net.api.revoking import read_revoke
from pushup.net.api.schemas import PollLimits, PublicationLimits
from pushup.net.application_interface import Client
from pushup.net.proxies import ClientField, TrustedProxies
from pushup.net.requests_and_responses import Request
from pushup.tokens.claims import read_object
from pushup.tokens.verifier import Verifier
from tests.net.in_memory_node import InMemoryNode, RecordingExchange
from tests.net.parser_readings import pieces
from tests.tokens.evil_tokens import NOW, SECRET, issuer, key, token, write

SMALL, MEDIUM, LARGE, PUBLICATION = 2 * 1024, 16 * 1024, 64 * 1024, 1024 * 1024
"""Bytes sent. Quadratic work is found with a medium size; a large one would keep this test busy for minutes.

Only a publication can be larger than `poll_body_limit_bytes`, 64 KiB; query strings and header fields are smaller.
"""

DETAIL_LIMIT = 500
"""Characters of an error, whatever it is about."""

ALLOWANCE = 3
"""How many times longer than in proportion to its size the larger one may take."""

FLOOR_SECONDS = 0.001
"""Shorter times are not compared: they depend on the machine's caches."""

PARTS = (
    b"a", b"A", b"0", b"9", b".", b"-", b",", b";", b":", b"/", b"&", b"=", b"?", b"*", b"@", b"+", b" ", b"(", b"[",
    b"{", b"'", b"`", b"%", b"%41", b"%25", b"%C3%A9", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\\\\", b'\\"', b"\\n",
    b"\\u0060", b"\\ud83d\\ude00", b" - at `$", b" - at `$.", b"unknown field `", b"required field `a`", b" (byte 1",
    b"0.", b"1e1", b"a=", b"a=1&", b"_=&", b"channel=a&", b"cursor=", b"&cursor=", b"q=", b";q=0", b", ;", b"[]",
    b'"a",', b"[1],", b'{"a":', b"://", b"a.", b"--\r\n", b"\\\\u", b"//", b"/v1/", b"channel/",
)  # fmt: skip
"""What a client repeats."""

ENDS = (b"", b"\\n", b"!", b"`")
"""What it ends with, so that a search from each place fails at the end."""

JSON = (b"%b", b'{"%b":1}', b'{"channels":"%b"}', b'{"channels":["%b"],"data":1}', b'{"%b', b"--%b")
PUBLICATIONS = (
    b'{"channels":["a"],"data":%b}', b'{"channels":["a"],"data":"%b"}', b'{"channels":["a"],"data":["%b"]}',
    b'{"ack":"%b"}', b'{"messages":[{"%b":1}]}', b'{"messages":[%b]}', b'{"channels":[%b],"data":1}',
    b'{"ack_timeout":%b}',
)  # fmt: skip
POLLS = (
    b'{"channels":["a"],"cursor":"%b"}', b'{"channels":["a"],"from":"%b"}', b'{"channels":["a"],"timeout":0.%b}',
    b'{"channels":["a"],"limit":%b}', b'{"channels":["a"],"from":%b}',
)  # fmt: skip
QUERIES = (
    b"%b", b"channel=%b", b"channel=a&%b", b"channel=a&cursor=%b", b"channel=a&from=%b", b"channel=a&timeout=%b",
    b"channel=a&limit=%b", b"channel=a&from=2027-01-15T08:00:00.%b",
)  # fmt: skip

Read = Callable[[bytes], object]

TOKENS = Verifier([issuer(key("HS256"))], lambda: NOW)
TOKEN = token().encode()


def get(target: bytes = b"/v1/poll", **headers: bytes) -> Request:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(b"GET", target, fields, keep_alive=True)


def publish(**headers: bytes) -> Request:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(b"POST", b"/v1/messages", fields, keep_alive=True, body=b"{}")


def ask_for_ticket(body: bytes) -> Request:
    return Request(b"POST", b"/v1/url-tickets", {b"authorization": b"Bearer " + TOKEN}, keep_alive=True, body=body)


def forwarded(field: ClientField) -> Read:
    """What a trusted proxy says."""
    proxies = TrustedProxies(("10.0.0.0/8",), field)
    name = field.lower().replace("-", "_")
    return lambda value: proxies.client(get(**{name: value}), Client("10.0.0.1"))


def read_names(part: bytes) -> None:
    """Of a header or claims of this size: each is another one, but the last, which stands there twice."""
    names = [f'"{number}":1' for number in range(len(part) // 8)]
    with pytest.raises(ValueError, match="twice"):
        read_object(f"{{{','.join([*names, names[-1]])}}}".encode(), "it")


HEADS: dict[str, Callable[[bytes], Request]] = {
    "path": lambda part: get(b"/" + part),
    "absolute target": lambda part: get(b"http://" + part),
    "path of a channel": lambda part: get(b"/v1/channels/" + part),
    "page of channels": lambda part: get(b"/v1/channels?" + part),
    "page after": lambda part: get(b"/v1/channels?after=" + part),
    "Host": lambda part: get(host=part),
    "Host after 1": lambda part: get(host=b"1" + part),
    "Origin": lambda part: publish(origin=part, host=b"localhost"),
    "Idempotency-Key": lambda part: publish(idempotency_key=part),
    "URL ticket": lambda part: get(b"/v1/events?channel=a&ticket=" + part),
    "before a URL ticket": lambda part: get(b"/v1/events?" + part + b"&ticket=a"),
    "traceparent": lambda part: publish(traceparent=part),
    "id of a message": lambda part: Request(b"DELETE", b"/v1/messages/" + part, {}, keep_alive=True),
    "Last-Event-ID": lambda part: get(b"/v1/events?channel=a", last_event_id=part),
    "If-None-Match": lambda part: get(b"/v1/pushup.js", if_none_match=part),
    "Accept-Encoding": lambda part: get(b"/v1/pushup.js", accept_encoding=part),
}


def readers() -> Iterator[tuple[str, Read]]:
    """Everything that reads what a client sends, with the part at each place where a client can put it."""
    limits = PublicationLimits(message_limit_bytes=10**9)
    reader = PollReader(PollLimits())
    bodies: dict[str, tuple[Read, tuple[bytes, ...]]] = {
        "publication": (lambda body: read_publication(body, None, limits), (*JSON, *PUBLICATIONS)),
        "poll": (reader.from_body, (*JSON, *POLLS)),
        "create": (read_create, JSON),
        "renew": (lambda body: read_renew("a", body), JSON),
        "revoke": (read_revoke, (*JSON, b'{"sub":"%b"}', b'{"sub":"a","issued_before":%b}')),
        "erase": (read_erase, (b"%b", b"channel=%b", b"owner=%b", b"channel=a&until=%b")),
        "token": (lambda text: TOKENS.grant(text.decode("latin-1")), (b"%b", b"a.%b.a", b"a.a.%b")),
        "header of a token": (
            lambda header: TOKENS.grant(write(header, "{}", SECRET)),
            (b"%b", b'{"alg":"%b"}', b'{"alg":"HS256","kid":"%b"}'),
        ),
        "names in a token": (read_names, (b"%b",)),
        "X-Forwarded-For": (forwarded("X-Forwarded-For"), (b"%b", b"%b,10.0.0.2", b"[%b]:1")),
        "Forwarded": (forwarded("Forwarded"), (b"%b", b"for=%b", b'for="%b";by=a')),
        "query": (reader.from_query, QUERIES),
        "query of a stream": (reader.stream_from_query, (*QUERIES, b"format=%b")),
        "accept": (lambda text: EventEncodings().find(text.decode("latin-1"), "json", chunked=True), (b"%b", b"1%b")),
        "cursor": (lambda text: parse_cursor(text.decode("latin-1")), (b"%b", b"1%b")),
        "ticket": (lambda text: Tickets(b"k" * 32).open(text.decode("latin-1"), ("a",)), (b"%b", b"1%b")),
        "URL ticket": (
            lambda text: Tickets(b"k" * 32).open_of_url(text.decode("latin-1"), ("a",), "https://a.example"),
            (b"%b", b"1.1.%b"),
        ),
        "name": (lambda text: check_name(text.decode("latin-1"), "channel"), (b"%b", b"1%b")),
        "pieces": (pieces, (b"%b", b"A  %b", b"\n\n%b")),
        "request lines": (lambda data: pieces(data, is_idle=True), (b"%b", b"A  %b", b"\n\n%b")),
        "logged target": (shown_target, (b"/%b", b"/?%b", b"http://%b")),
    }
    for name, (read, places) in bodies.items():
        for place in places:
            yield f"{name} {place.decode()}", _at(place, read)
    node = InMemoryNode(hosts=(), cors_origins=("https://a.example",))
    for name, request in HEADS.items():
        yield name, _asked(node, request)
    with_key = InMemoryNode(publish_keys=("k" * 16,))
    with_tokens = InMemoryNode(tokens=TOKENS, token_cookie="t")
    for place in (b"%b", b"t=%b"):
        yield (
            f"Cookie {place.decode()}",
            _at(place, _asked(with_tokens, lambda part: get(b"/v1/poll?channel=a", cookie=part))),
        )
    with_tokens.streaming.poll_access.url_tickets = Tickets(b"k" * 32)
    for place in JSON:
        yield f"URL ticket's body {place.decode()}", _at(place, _asked(with_tokens, ask_for_ticket))
    yield "Authorization", _asked(with_key, lambda part: publish(authorization=b"Bearer " + part))


def _at(place: bytes, read: Read) -> Read:
    return lambda part: read(place % part)


def _asked(node: InMemoryNode, request: Callable[[bytes], Request]) -> Read:
    def read(part: bytes) -> None:
        exchange = RecordingExchange()
        node.api(request(part), exchange)
        for response in exchange.responses:
            assert response.status < 400 or len(response.body) < 2 * DETAIL_LIMIT

    return read


READERS = dict(readers())


@pytest.mark.parametrize("name", READERS)
def test_reading_takes_linear_time(name: str) -> None:
    """Eight times as much of anything takes at most 24 times as long. So does the most of the worst, up to 1 MiB."""
    read = READERS[name]
    worst, most = (b"", b""), 0.0
    for part, end in product(PARTS, ENDS):
        taken = _check(read, part, end, SMALL, MEDIUM)
        if taken >= most:
            worst, most = (part, end), taken
    _check(read, *worst, MEDIUM, PUBLICATION if name.startswith("publication") else LARGE)


def _check(read: Read, part: bytes, end: bytes, size: int, larger: int) -> float:
    """The seconds that the larger size takes. Up to three attempts: other programs may need the caches meanwhile."""
    data = part * (larger // len(part)) + end
    for _ in range(3):
        taken = _seconds(read, data)
        allowed = ALLOWANCE * (larger // size)
        if taken <= allowed * FLOOR_SECONDS or taken <= allowed * _seconds(read, part * (size // len(part)) + end):
            return taken
    raise AssertionError(f"{larger} bytes of {part!r} and {end!r} take {taken:.3f} s, more than {allowed} times {size}")


def _seconds(read: Read, data: bytes) -> float:
    """The processor time of this thread; what an error says is of limited length."""
    detail = ""
    began = thread_time()
    try:
        read(data)
    except PushUpError as error:
        detail = f"{error.detail} {error.field}"
    seconds = thread_time() - began
    assert len(detail) <= DETAIL_LIMIT, detail[:DETAIL_LIMIT]
    return seconds
