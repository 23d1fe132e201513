"""The output buffer: a client's bytes that the kernel would not take yet (Hsu §3.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class OutputBuffer:
    """Unsent bytes in order, bounded. Made when the kernel refuses bytes, let go when it has taken them.

    Past `limit` bytes the client's link has been jammed for so long that the connection counts as failed.
    """

    __slots__ = ("_limit", "_parts", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[memoryview] = deque()
        self.size = 0

    def append(self, data: bytes | memoryview) -> bool:
        """Add bytes to be sent; False when that is more than the limit."""
        part = memoryview(data)
        self._parts.append(part)
        self.size += len(part)
        return self.size <= self._limit

    def write(self, send: Callable[[memoryview], int]) -> None:
        """Send what can be sent.

        Raises: what `send` raises; BlockingIOError when the kernel takes no more for now. Nothing is lost by it.
        """
        while self._parts:
            part = self._parts[0]
            sent = send(part)
            self.size -= sent
            if sent < len(part):
                self._parts[0] = part[sent:]
            else:
                self._parts.popleft()
