"""The output buffer: bytes in order, without duplicates or loss, up to its limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushup.net.output_buffer import OutputBudget, OutputBuffer
from pushup.testing.in_memory import InMemorySocket


class Slow:
    """A client that is never lost here: the budget is ample."""

    def lost(self) -> None:
        raise AssertionError("there was no pressure")


def new_buffer(limit: int) -> OutputBuffer:
    return OutputBuffer(Slow(), limit, OutputBudget(1 << 30, lambda: None))


@given(parts=st.lists(st.binary(max_size=30), max_size=8), room=st.lists(st.integers(0, 20), max_size=40))
@settings(deadline=None, database=None, derandomize=True)
def test_bytes_come_out_as_they_went_in(parts: list[bytes], room: list[int]) -> None:
    """However little the kernel accepts at a time, it gets all bytes in order, and `size` says how many are left."""
    buffer, kernel = new_buffer(10_000), InMemorySocket(capacity=0)
    whole = b"".join(parts)
    for part in parts:
        assert buffer.append(part)
    for size in (*room, 1000):
        kernel.capacity = size
        before = len(kernel.outgoing)
        assert buffer.write(kernel.send) == len(kernel.outgoing) - before
        assert buffer.size == len(whole) - len(kernel.outgoing)
        assert whole.startswith(kernel.outgoing)
    assert buffer.size == 0


def test_more_can_be_added_in_between() -> None:
    """Bytes that are added while others wait are sent after them; those that were sent before are not sent again."""
    buffer, kernel = new_buffer(100), InMemorySocket(capacity=3)
    buffer.append(b"sent abcde", 5)
    assert buffer.write(kernel.send) == 3
    buffer.append(b"fgh")
    kernel.capacity = None
    assert buffer.write(kernel.send) == 5
    assert kernel.outgoing == b"abcdefgh"


def test_limit() -> None:
    buffer, kernel = new_buffer(10), InMemorySocket(capacity=4)
    assert buffer.append(b"x" * 10)
    assert buffer.write(kernel.send) == 4
    assert buffer.append(b"y" * 4)
    assert not buffer.append(b"z")


def test_a_broken_connection_is_reported() -> None:
    buffer, kernel = new_buffer(10), InMemorySocket()
    kernel.broken = True
    buffer.append(b"x")
    with pytest.raises(BrokenPipeError):
        buffer.write(kernel.send)
