"""The header fields of requests that came before: a client sends the same ones with each of its polls.

Looking up the fifteen of a browser takes 1.6 us. llhttp, which calls back for each, takes 5.7 us. It remains the judge:
it has accepted what is remembered here, after a request line of the same form. Whatever differs from that in any way
goes to llhttp.

What may name a person, such as a cookie or a key, is never kept: a head with such fields is known by a digest of all of
its bytes, and their values are taken from the request itself.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from pushup.net.edge_limits import RequestLimits
from pushup.net.requests_and_responses import FIELD_OVERHEAD_BYTES, Request

HEAD_LIMIT_BYTES = 4 * 1024
"""Longer heads are not remembered."""

MEMORY_LIMIT_BYTES = 4 * 1024 * 1024
"""What all remembered heads may take. If they would take more, all are forgotten: those in use come again soon."""

KNOWN_OVERHEAD_BYTES = 400
"""The memory of a remembered head beside its fields. With those of a browser, all of it was measured at 3,060 bytes; it
counts 3,170.
"""

_PLAIN = (string.ascii_letters + string.digits + "/?&=-._~!$'()*+,;:@%").encode()
"""What the target of a known head may contain (RFC 3986 §3.3, §3.4), after a `/`."""

_VERSION = b" HTTP/1.1\r\n"

_END = b"\r\n\r\n"

_RARE = frozenset(
    (
        b"transfer-encoding", b"expect", b"upgrade", b"connection", b"idempotency-key", b"last-event-id",
        b"traceparent", b"tracestate",
    )
)  # fmt: skip
"""Fields that change how a request is read or answered, and those with another value each time; but `Connection:
keep-alive` changes nothing.
"""

_IMPERSONAL = frozenset(
    (
        b"accept", b"accept-charset", b"accept-encoding", b"accept-language", b"cache-control", b"connection",
        b"content-length", b"content-type", b"dnt", b"host", b"keep-alive", b"origin", b"pragma", b"priority",
        b"sec-ch-ua", b"sec-ch-ua-mobile", b"sec-ch-ua-platform", b"sec-fetch-dest", b"sec-fetch-mode",
        b"sec-fetch-site", b"sec-fetch-user", b"sec-gpc", b"te", b"user-agent", b"via", b"x-requested-with",
    )
)  # fmt: skip
"""Fields that are kept. Any other may name a person: Authorization, Cookie, a ticket, an address that a proxy adds."""


class _Known(NamedTuple):
    """`begin`: of the request line. `headers`: those that are kept. `personal`: names, begins and ends of the others in
    the key. `size`: of all fields, as `header_limit_bytes` counts it. `length`: of the body.
    """

    begin: bytes
    method: bytes
    headers: Mapping[bytes, bytes]
    personal: tuple[tuple[bytes, int, int], ...]
    size: int
    length: int


class KnownHeads:
    """All bytes of a head behind the target, up to and including the empty line -> what llhttp made of the fields. For
    all connections.

    The empty line is part of the key, so that the beginning of a longer head is never found.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._known: dict[bytes, _Known] = {}
        self._personal: dict[bytes, _Known] = {}  # by digests
        self._bytes = 0

    def find(self, data: bytes) -> Request | None:
        """The request that these bytes are, if they are exactly one whose head is known. O(bytes)."""
        line_end = data.find(_VERSION)
        head_end = data.rfind(_END) + len(_END)  # from the end, because most requests have no body
        if not 0 <= line_end < head_end:
            return None
        key = data[line_end:head_end]
        known = self._known.get(key)
        if known is None:
            known = self._personal.get(sha256(key).digest())
            if known is None:
                return None
        begin, method, headers, personal, size, length = known
        if len(data) - head_end != length or not data.startswith(begin):
            return None
        target = data[len(begin) - 1 : line_end]
        if (
            target.translate(None, _PLAIN)
            or len(target) > self._limits.target_limit_bytes
            or size + len(target) > self._limits.header_limit_bytes
        ):
            return None
        if personal:
            headers = {**headers, **{name: key[start:end] for name, start, end in personal}}
        return Request(method, target, headers, True, data[head_end:])

    def remember(self, data: bytes, request: Request) -> None:
        """Remember the head of a request that llhttp has made of exactly these bytes, and that is not the last."""
        method, headers = request.method, request.headers
        line = b"%b %b" % (method, request.target)
        head_end = data.find(_END, len(line)) + len(_END)
        if not len(line) < head_end <= HEAD_LIMIT_BYTES or not data.startswith(line):
            return
        key = data[len(line) : head_end]
        if (
            data[head_end:] != request.body
            or not key.startswith(_VERSION)
            or key.count(b"\r\n") - 2 != len(headers)  # else a field is repeated
            or method not in (b"GET", b"POST")
            or not self._is_usual(headers)
        ):
            return
        personal = _personal(key, headers)
        table = self._known
        if personal:
            table, key = self._personal, sha256(key).digest()
            headers = {name: value for name, value in headers.items() if name in _IMPERSONAL}
        if key not in table:
            memory = 2 * (head_end - len(line)) + KNOWN_OVERHEAD_BYTES + FIELD_OVERHEAD_BYTES * len(request.headers)
            if self._bytes + memory > MEMORY_LIMIT_BYTES:
                self._known.clear()
                self._personal.clear()
                self._bytes = 0
            self._bytes += memory
        size = sum([len(name) + len(value) + 4 for name, value in request.headers.items()])
        table[key] = _Known(method + b" /", method, headers, personal, size, len(request.body))

    @staticmethod
    def _is_usual(headers: Mapping[bytes, bytes]) -> bool:
        rare = [name for name in headers if name in _RARE]
        return not rare or (rare == [b"connection"] and headers[b"connection"].lower() == b"keep-alive")


def _personal(key: bytes, headers: Mapping[bytes, bytes]) -> tuple[tuple[bytes, int, int], ...]:
    """The names of the fields that may name a person, and where their values are in these bytes."""
    found, place = [], len(_VERSION)
    for field in key[place : -len(_END)].split(b"\r\n"):
        name, _, text = field.partition(b":")
        name = name.lower()
        if name not in _IMPERSONAL:
            start = place + len(name) + 1 + len(text) - len(text.lstrip(b" \t"))
            end = start + len(headers[name])
            assert key[start:end] == headers[name]
            found.append((name, start, end))
        place += len(field) + 2
    return tuple(found)
