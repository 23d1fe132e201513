"""The header fields of requests that came before: a client sends the same ones with each of its polls.

Looking up the fifteen of a browser takes 1.6 us. llhttp, which calls back for each, takes 5.7 us. It remains the judge:
it has accepted what is remembered here, after a request line of the same form. Whatever differs from that in any way
goes to llhttp.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import NamedTuple

from pushup.net.edge_limits import RequestLimits
from pushup.net.request import FIELD_OVERHEAD_BYTES, Request

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

_RARE = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"connection"))
"""Fields that change how a request is read or answered; but `Connection: keep-alive` changes nothing."""


class _Known(NamedTuple):
    """`begin`: of the request line. `size`: of the fields, as `header_limit_bytes` counts it. `length`: of the body."""

    begin: bytes
    method: bytes
    headers: Mapping[bytes, bytes]
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
        self._bytes = 0

    def find(self, data: bytes) -> Request | None:
        """The request that these bytes are, if they are exactly one whose head is known. O(bytes)."""
        line_end = data.find(_VERSION)
        head_end = data.rfind(_END) + len(_END)  # from the end, because most requests have no body
        if not 0 <= line_end < head_end:
            return None
        known = self._known.get(data[line_end:head_end])
        if known is None:
            return None
        begin, method, headers, size, length = known
        if len(data) - head_end != length or not data.startswith(begin):
            return None
        target = data[len(begin) - 1 : line_end]
        if (
            target.translate(None, _PLAIN)
            or len(target) > self._limits.target_limit_bytes
            or size + len(target) > self._limits.header_limit_bytes
        ):
            return None
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
        if key not in self._known:
            memory = 2 * len(key) + KNOWN_OVERHEAD_BYTES + FIELD_OVERHEAD_BYTES * len(headers)
            if self._bytes + memory > MEMORY_LIMIT_BYTES:
                self._known.clear()
                self._bytes = 0
            self._bytes += memory
        size = sum([len(name) + len(value) + 4 for name, value in headers.items()])
        self._known[key] = _Known(method + b" /", method, headers, size, len(request.body))

    @staticmethod
    def _is_usual(headers: Mapping[bytes, bytes]) -> bool:
        rare = [name for name in headers if name in _RARE]
        return not rare or (rare == [b"connection"] and headers[b"connection"].lower() == b"keep-alive")
