"""One channel: the messages it keeps, what it remembers of those it dropped, and how messages are found."""

from __future__ import annotations

import math

import pytest

from pushup.core.channel import LIST_LIMIT, MESSAGE_OVERHEAD_BYTES, Channel
from pushup.core.poll import Selection

from .builders import message


def channel_of(*places: tuple[int, float]) -> Channel:
    """An open channel with messages at these (sequence, time)."""
    channel = Channel("a")
    channel.id = 1
    for sequence, time in places:
        channel.keep(message(sequence, time, "a"))
    return channel


def after(channel: Channel, sequence: int, start: float = 0.0, end: float = math.inf) -> list[int]:
    return [m.sequence for m in channel.after(sequence, Selection(("a",), 100, start, end))]


def test_a_message_costs_its_data_and_an_overhead() -> None:
    assert message(1, 1.0, "a", data='"é"').size == 4 + MESSAGE_OVERHEAD_BYTES


def test_a_new_channel_has_nothing() -> None:
    """Sequence 0 is before every message, closing and drop."""
    new = Channel("a")
    sequences = (new.dropped_sequence, new.known_dropped_sequence, new.closed_sequence, new.latest_sequence)
    assert sequences == (0, 0, 0, 0)
    assert (new.messages, new.bytes, new.reason, new.is_open, new.is_remembered) == (None, 0, "expired", False, False)


def test_a_channel_keeps_messages_and_counts_itself_as_holder() -> None:
    """Adding a message makes its sequence the channel's latest."""
    channel = channel_of((3, 1.0), (5, 1.0))
    channel.check()
    assert (channel.latest_sequence, channel.dropped_sequence) == (5, 0)
    assert channel.messages is not None
    assert [m.holders for m in channel.messages] == [1, 1]


def test_drops_are_remembered() -> None:
    """The oldest message is dropped first; the highest dropped sequence and its reason are kept."""
    channel = channel_of((3, 1.0), (5, 1.0))
    first = channel.drop_oldest("evicted")
    assert (first.sequence, first.holders, channel.dropped_sequence, channel.reason) == (3, 0, 3, "evicted")
    channel.check()
    channel.drop_oldest("expired")
    assert (channel.messages, channel.dropped_sequence, channel.reason) == (None, 5, "expired")
    assert channel.latest_sequence == 5
    channel.check()


def test_messages_before_a_new_channel_are_assumed_dropped() -> None:
    """The assumption is replaced by fact once the channel drops a message."""
    channel = Channel("a", dropped_sequence=9, latest_sequence=9)
    assert (channel.dropped_sequence, channel.known_dropped_sequence, channel.latest_sequence) == (9, 0, 9)
    channel.id = 1
    channel.keep(message(12, 1.0, "a"))
    assert (channel.dropped_sequence, channel.known_dropped_sequence, channel.latest_sequence) == (9, 0, 12)
    channel.drop_oldest("evicted")
    assert (channel.dropped_sequence, channel.known_dropped_sequence, channel.latest_sequence) == (12, 12, 12)
    channel.check()


@pytest.mark.parametrize(
    ("sequence", "found"),
    [
        (0, [3, 5, 6, 9]),
        (2, [3, 5, 6, 9]),
        (3, [5, 6, 9]),
        (4, [5, 6, 9]),
        (5, [6, 9]),
        (6, [9]),
        (8, [9]),
        (9, []),
        (10, []),
    ],
)
def test_messages_after_a_sequence_are_found(sequence: int, found: list[int]) -> None:
    """The sequence itself is exclusive."""
    assert after(channel_of((3, 1.0), (5, 2.0), (6, 2.0), (9, 3.0)), sequence) == found
    if sequence < 9:
        assert after(channel_of((9, 3.0)), sequence) == [9]


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (1.0, 2.0, [3]),
        (1.0, 2.001, [3, 5, 6]),
        (2.0, math.inf, [5, 6, 9]),
        (2.001, math.inf, [9]),
        (0.0, 3.0, [3, 5, 6]),
        (3.0, 3.0, []),
        (3.0, 1.0, []),
        (3.5, math.inf, []),
        (0.0, 1.0, []),
    ],
)
def test_a_time_range_includes_its_start_and_not_its_end(start: float, end: float, found: list[int]) -> None:
    assert after(channel_of((3, 1.0), (5, 2.0), (6, 2.0), (9, 3.0)), 0, start, end) == found


def test_the_beginning_of_time_is_the_default() -> None:
    """A range from time 1 on is not all there is."""
    assert after(channel_of((3, 0.5), (5, 2.0)), 0, start=1.0) == [5]


def test_the_later_of_cursor_and_time_range_counts() -> None:
    channel = channel_of((3, 1.0), (5, 2.0), (6, 2.0), (9, 3.0))
    assert after(channel, 5, start=1.0) == [6, 9]
    assert after(channel, 3, start=3.0) == [9]
    assert after(channel, 6, end=3.0) == []


@pytest.mark.parametrize("start", [0.0, 1.5])
def test_no_more_are_found_than_tell_that_there_are_more(start: float) -> None:
    """One more than the limit, however many messages there are."""
    channel = channel_of(*[(n, float(n)) for n in range(1, 10)])
    found = channel.after(2, Selection(("a",), 3, start, 99.0))
    assert [m.sequence for m in found] == [3, 4, 5, 6]


def test_an_empty_channel_has_nothing() -> None:
    assert after(channel_of(), 0) == []
    assert after(channel_of(), 0, 1.0, 2.0) == []


def test_large_channels_behave_like_small_ones() -> None:
    """Beyond `LIST_LIMIT` messages are kept in a tree, which finds and drops the same ones."""
    channel = Channel("a")
    channel.id = 1
    count = 2 * LIST_LIMIT + 100
    trees = set()
    for sequence in range(1, count + 1):
        channel.keep(message(sequence, sequence / 4, "a"))
        assert isinstance(channel.messages, list) == (sequence <= LIST_LIMIT)
        trees.add(id(channel.messages))
    assert len(trees) == 2, "it is not built again for each message"
    emptied = channel_of(*[(n, 1.0) for n in range(1, LIST_LIMIT + 2)])
    for _ in range(LIST_LIMIT):
        emptied.drop_oldest("evicted")
    emptied.keep(message(LIST_LIMIT + 2, 1.0, "a"))
    emptied.check()
    assert after(emptied, 0) == [LIST_LIMIT + 1, LIST_LIMIT + 2]
    for dropped in (0, 10, count - LIST_LIMIT, count - 3):
        while channel.dropped_sequence < dropped:
            assert channel.drop_oldest("evicted").sequence == channel.dropped_sequence
        channel.check()
        for cursor in (0, dropped, dropped + 1, LIST_LIMIT, count - 2, count - 1, count):
            found = [m.sequence for m in channel.after(cursor, Selection(("a",), 10_000))]
            assert found == list(range(max(cursor, dropped) + 1, count + 1))
        ranged = Selection(("a",), 10_000, start=count / 4 - 2, end=count / 4)
        assert [m.sequence for m in channel.after(0, ranged)] == list(range(max(count - 8, dropped + 1), count))
