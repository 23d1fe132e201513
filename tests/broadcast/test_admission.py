"""The waiting room: how much a command counts for, and what happens when it is full."""

from __future__ import annotations

import pytest

from pushup.broadcast.admission import COMMAND_BYTES, WaitingLimits, WaitingRoom, size_of
from pushup.core.commands import Create, Expire
from pushup.core.errors import Overloaded
from tests.core.builders import batch, draft, publish


def room(limit: int) -> WaitingRoom:
    return WaitingRoom(WaitingLimits(waiting_limit_bytes=limit))


def test_a_command_counts_for_the_memory_it_takes() -> None:
    """Data and names, plus an overhead for each message, each name and each publisher."""
    assert size_of(Expire()) == size_of(Create("a")) == COMMAND_BYTES
    assert size_of(publish("abc", data="x" * 1000)) == COMMAND_BYTES + 1000 + 2 * 100 + 3
    many = batch(draft("a", "b", data="1"), draft("c", data="22"))
    assert size_of(many) == COMMAND_BYTES + 3 + 5 * 100 + 3


def test_a_command_that_leaves_makes_room() -> None:
    """Small commands fit where a large one does not."""
    command = publish("a", data="x" * 10_000)
    size = size_of(command)
    full = room(2 * size + COMMAND_BYTES)
    assert [full.enter(command), full.enter(command), full.enter(command)] == [size, size, 0]
    assert full.enter(Expire()) == COMMAND_BYTES
    assert full.enter(Expire()) == 0
    full.leave(size)
    assert full.bytes == size + COMMAND_BYTES
    assert full.enter(command) == size


def test_a_command_may_always_wait_alone() -> None:
    """Whatever its size, because otherwise it would always be refused."""
    small = room(10)
    assert small.enter(Expire()) == COMMAND_BYTES
    assert small.enter(Expire()) == 0
    small.leave(COMMAND_BYTES)
    assert small.enter(publish("a", data="x" * 10_000)) > 10_000


def test_only_a_command_that_entered_can_leave() -> None:
    """Freeing a size twice would admit more than the limit."""
    empty = room(10_000)
    with pytest.raises(AssertionError):
        empty.leave(1)


def test_the_error_says_when_to_retry() -> None:
    received = room(10_000).full()
    assert isinstance(received, Overloaded)
    assert received.retry_after == 1
    assert "waiting_limit_bytes = 10000" in received.detail
