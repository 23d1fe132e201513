"""The output buffer: bytes for a client that the kernel has not accepted yet (Hsu §3.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class OutputBuffer:
    """Unsent bytes in order. It exists from when the kernel refuses bytes until it has accepted them all.

    `append` returns False when more than `limit` bytes are unsent; the connection then closes itself.
    """

    __slots__ = ("_limit", "_parts", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[memoryview] = deque()
        self.size = 0

    def append(self, data: bytes | memoryview) -> bool:
        """Add bytes; whether the buffer is still within its limit."""
        part = memoryview(data)
        self._parts.append(part)
        self.size += len(part)
        return self.size <= self._limit

    def write(self, send: Callable[[memoryview], int]) -> int:
        """Send what the kernel accepts; returns how many bytes that was.

        Raises: what `send` raises, except BlockingIOError; nothing is lost by it.
        """
        before = self.size
        while self._parts:
            part = self._parts[0]
            try:
                sent = send(part)
            except BlockingIOError:
                break
            self.size -= sent
            if sent < len(part):
                self._parts[0] = part[sent:]
            else:
                self._parts.popleft()
        return before - self.size
