"""The header fields of requests that came before: a client sends the same ones with each of its polls.

Looking up the fifteen of a browser takes 1.6 us. llhttp, which calls back for each, takes 5.7 us. It remains the judge:
it has accepted what is remembered here, after a request line of the same form. Whatever differs from that in any way
goes to llhttp.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import NamedTuple

from pushup.net.limits import RequestLimits
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

_VERSION = b" HTTP/1.1"

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
    """Header fields as they are sent, all of a request together -> what llhttp made of them. For all connections."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._known: dict[bytes, _Known] = {}
        self._bytes = 0

    def find(self, data: bytes) -> Request | None:
        """The request that these bytes are, if they are exactly one whose head is known. O(bytes)."""
        head, _, body = data.partition(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        known = self._known.get(fields)
        if known is None:
            return None
        begin, method, headers, size, length = known
        if len(body) != length or not line.startswith(begin) or not line.endswith(_VERSION):
            return None
        target = line[len(begin) - 1 : len(line) - len(_VERSION)]
        if (
            target.translate(None, _PLAIN)
            or len(target) > self._limits.target_limit_bytes
            or size + len(target) > self._limits.header_limit_bytes
        ):
            return None
        return Request(method, target, headers, True, body)

    def remember(self, data: bytes, request: Request) -> None:
        """Remember the head of a request that llhttp has made of exactly these bytes, and that is not the last."""
        method, headers = request.method, request.headers
        head, _, body = data.partition(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        if (
            len(head) > HEAD_LIMIT_BYTES
            or body != request.body
            or line != b"%b %b HTTP/1.1" % (method, request.target)
            or fields.count(b"\r\n") + 1 != len(headers)  # else a field is repeated
            or method not in (b"GET", b"POST")
            or not self._is_usual(headers)
        ):
            return
        memory = 2 * len(fields) + KNOWN_OVERHEAD_BYTES + FIELD_OVERHEAD_BYTES * len(headers)
        if self._bytes + memory > MEMORY_LIMIT_BYTES:
            self._known.clear()
            self._bytes = 0
        self._bytes += memory
        size = sum([len(name) + len(value) + 4 for name, value in headers.items()])
        self._known[fields] = _Known(method + b" /", method, headers, size, len(body))

    @staticmethod
    def _is_usual(headers: Mapping[bytes, bytes]) -> bool:
        rare = [name for name in headers if name in _RARE]
        return not rare or (rare == [b"connection"] and headers[b"connection"].lower() == b"keep-alive")
