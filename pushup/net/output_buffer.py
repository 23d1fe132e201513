"""The output buffer: bytes for a client that the kernel has not accepted yet (Hsu §3.2). The output budget: how much
all clients together may leave unread.

In a fan-out the same bytes object goes to many clients, and counts once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

PART_OVERHEAD_BYTES = 200
"""The memory of a response, or of a piece of a stream, beside its bytes. Measured at 182 bytes."""

HOLDER_BYTES = 8
"""What it costs with each further client that has not read it."""

BUFFER_BYTES = 900
"""The memory of an output buffer. Measured at 886 bytes."""

RELIEF = 8
"""Under pressure an eighth of the budget becomes free, because sorting the slow clients takes 1 us each."""


class Part:
    """Bytes that at least one client has not read. `owner`: the buffer that counts them, until it has sent them."""

    __slots__ = ("data", "holders", "owner")

    def __init__(self, data: bytes, owner: OutputBuffer) -> None:
        self.data = data
        self.holders = 0
        self.owner: OutputBuffer | None = owner


class Slow(Protocol):
    """A connection whose client does not read."""

    def lost(self) -> None:
        """Close it."""


class OutputBudget:
    """Counts the memory of all output buffers against a limit, and calls `exceeded` once when it is exceeded.

    `relieve` must be called then, but not at once: it ends other connections than the one that is being written to.
    """

    __slots__ = ("_buffers", "_exceeded", "_is_exceeded", "_parts", "limit", "used")

    def __init__(self, limit: int, exceeded: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self._exceeded = exceeded
        self._is_exceeded = False
        self._buffers: dict[OutputBuffer, None] = {}  # the one that has been behind for the longest comes first
        self._parts: dict[int, Part] = {}  # by the identity of their bytes, which exist for as long as the part does

    def begin(self, buffer: OutputBuffer) -> None:
        """Count a buffer."""
        self._buffers[buffer] = None
        self._add(BUFFER_BYTES)

    def end(self, buffer: OutputBuffer) -> None:
        """Count a buffer no longer, which must be empty."""
        del self._buffers[buffer]
        self.used -= BUFFER_BYTES

    def take(self, buffer: OutputBuffer, data: bytes) -> Part:
        """Count bytes for a buffer. O(1)."""
        part = self._parts.get(id(data))
        if part is None:
            part = self._parts[id(data)] = Part(data, buffer)
            size = len(data) + PART_OVERHEAD_BYTES
            buffer.own_bytes += size
        else:
            size = HOLDER_BYTES
        part.holders += 1
        self._add(size)
        return part

    def give_back(self, buffer: OutputBuffer, part: Part) -> None:
        """A buffer has sent a part, or drops it. O(1)."""
        size = len(part.data) + PART_OVERHEAD_BYTES
        if part.owner is buffer:
            part.owner = None
            buffer.own_bytes -= size
        part.holders -= 1
        if part.holders:
            self.used -= HOLDER_BYTES
        else:
            self.used -= size
            del self._parts[id(part.data)]

    def relieve(self) -> int:
        """Close connections until enough is free; returns how many.

        First those that cost most; of two that cost the same, the one that has been behind for longer. O(n log n).
        """
        self._is_exceeded = False
        if self.used <= self.limit:
            return 0
        goal = self.limit - self.limit // RELIEF
        closed = 0
        for buffer in sorted(self._buffers, key=_cost, reverse=True):
            if self.used <= goal:
                break
            closed += 1
            buffer.slow.lost()
        return closed

    def _add(self, size: int) -> None:
        self.used += size
        if self.used > self.limit and not self._is_exceeded:
            self._is_exceeded = True
            self._exceeded()


class OutputBuffer:
    """Unsent bytes in order. It exists from when the kernel refuses bytes until it has accepted them all.

    `append` returns False when more than `limit` bytes are unsent; the connection then closes itself. `discard` must be
    called in the end.
    """

    __slots__ = ("_budget", "_limit", "_parts", "_sent", "own_bytes", "size", "slow")

    def __init__(self, slow: Slow, limit: int, budget: OutputBudget) -> None:
        self.slow = slow
        self._limit = limit
        self._budget = budget
        self._parts: deque[Part] = deque()
        self._sent = 0  # bytes of the first part
        self.size = 0
        self.own_bytes = 0
        """What it counts in the budget beside itself: bytes that it was the first to hold."""
        budget.begin(self)

    def append(self, data: bytes, sent: int = 0) -> bool:
        """Add bytes; whether the buffer is still within its limit. `sent`: how many of the first bytes were sent."""
        if sent:
            assert not self._parts
            self._sent = sent
        self._parts.append(self._budget.take(self, data))
        self.size += len(data) - sent
        return self.size <= self._limit

    def write(self, send: Callable[[bytes | memoryview], int]) -> int:
        """Send what the kernel accepts; returns how many bytes that was.

        Raises: what `send` raises, except BlockingIOError; nothing is lost by it.
        """
        before = self.size
        while self._parts:
            part = self._parts[0]
            try:
                sent = send(memoryview(part.data)[self._sent :] if self._sent else part.data)
            except BlockingIOError:
                break
            self.size -= sent
            self._sent += sent
            if self._sent == len(part.data):
                self._drop_first()
        return before - self.size

    def discard(self) -> None:
        """Drop what is unsent. The buffer must not be used again."""
        while self._parts:
            self._drop_first()
        self._budget.end(self)

    def _drop_first(self) -> None:
        self._sent = 0
        self._budget.give_back(self, self._parts.popleft())


def _cost(buffer: OutputBuffer) -> tuple[int, int]:
    return buffer.own_bytes, buffer.size
