"""A request, as the rest of the edge and the application see it."""

from __future__ import annotations

from collections.abc import Mapping

FIELD_OVERHEAD_BYTES = 100
"""The memory of a header field beside its bytes."""

REQUEST_OVERHEAD_BYTES = 250
"""The memory of a request beside its fields, target and body. Measured at 225 bytes."""


class Request:
    """One request. Header names are in lower case; the values of a repeated field are joined by `, `.

    Requests may share their `headers`, which therefore never change.

    `keep_alive`, whether another request may follow, is certain once the request is complete. `is_1_0`: the client
    speaks HTTP/1.0, and knows no chunks.
    """

    __slots__ = ("body", "headers", "is_1_0", "keep_alive", "method", "target")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Mapping[bytes, bytes],
        keep_alive: bool,
        body: bytes = b"",
        is_1_0: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = body
        self.is_1_0 = is_1_0

    @property
    def size(self) -> int:
        """Its memory in bytes, approximately."""
        fields = sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in self.headers.items())
        return REQUEST_OVERHEAD_BYTES + len(self.target) + fields + len(self.body)

    def header(self, name: bytes) -> str:
        """The value of a header field as text; empty if it is missing."""
        return self.headers.get(name, b"").decode("latin-1")
