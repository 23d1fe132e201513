"""What a poll gets: messages, gaps, closings, and where it goes on."""

from __future__ import annotations

import math

import msgspec
import pytest
from msgspec import Raw

from pushup.core.answer import RECEIVED_OVERHEAD_BYTES, Answer, Gap, Received, read
from pushup.core.channel import Channel
from pushup.core.cursor import Cursor, Start
from pushup.core.message import Message
from pushup.core.poll import Selection

from .builders import EPOCH, gaps, ids


class Stream:
    """Channels by name, with the messages that were put on them; an entry a message."""

    def __init__(self) -> None:
        self.channels: dict[str, Channel] = {}
        self.last = 0

    def add(self, names: str, time: float = 1.0, data: str = "1") -> None:
        self.last += 1
        message = Message(self.last, time, tuple(names), Raw(data.encode()))
        for name in names:
            channel = self.channels.setdefault(name, Channel(name))
            channel.id = 1
            channel.keep(message)
            channel.check()

    def ask(
        self,
        names: str,
        cursor: Cursor | Start | int = Start.EARLIEST,
        *,
        limit: int = 100,
        start: float = 0.0,
        end: float = math.inf,
        limit_bytes: int = 100_000,
    ) -> Answer:
        cursor = Cursor(EPOCH, cursor) if isinstance(cursor, int) else cursor
        channels = [self.channels.setdefault(name, Channel(name)) for name in names]
        selection = Selection(tuple(names), limit, start, end)
        return read(channels, selection, cursor, Cursor(EPOCH, self.last), limit_bytes)


def stream_of(*messages: str) -> Stream:
    """Messages 1, 2, ... on these channels, at times 1, 2, ..."""
    stream = Stream()
    for time, names in enumerate(messages, 1):
        stream.add(names, float(time))
    return stream


def test_an_answer_is_the_json_of_the_interface() -> None:
    """Fields, their order and their names are those of the HTTP interface; data stays as it was written."""
    stream = Stream()
    stream.add("ab", 1.5, '{"q": 1.0}')
    assert msgspec.json.encode(stream.ask("ba")) == (
        b'{"cursor":"e1-1","messages":[{"id":"e1-1","time":1.5,"channels":["b","a"],"data":{"q": 1.0}}],'
        b'"more":false,"gaps":[],"closed":[]}'
    )
    assert msgspec.json.encode(Answer("e1-1", (), False, (Gap("a", "expired"),), ("b",))) == (
        b'{"cursor":"e1-1","messages":[],"more":false,"gaps":[{"channel":"a","reason":"expired"}],"closed":["b"]}'
    )


def test_several_channels_are_merged_and_each_message_comes_once() -> None:
    """Messages come by sequence, `channels` names those that were asked for, in the order asked."""
    stream = stream_of("a", "bc", "abc", "c", "d", "ba")
    answer = stream.ask("cb")
    assert [(m.id, m.channels) for m in answer.messages] == [
        ("e1-2", ("c", "b")),
        ("e1-3", ("c", "b")),
        ("e1-4", ("c",)),
        ("e1-6", ("b",)),
    ]
    assert (answer.cursor, answer.more) == ("e1-6", False)
    assert ids(stream.ask("abcd")) == [1, 2, 3, 4, 5, 6]
    assert stream.ask("a").messages[0] == Received("e1-1", 1.0, ("a",), Raw(b"1"))


@pytest.mark.parametrize(
    ("cursor", "found"),
    [(Start.EARLIEST, [1, 2, 4]), (0, [1, 2, 4]), (1, [2, 4]), (2, [4]), (3, [4]), (4, []), (5, [])],
)
def test_a_cursor_has_seen_its_own_message_and_not_the_next(cursor: Start | int, found: list[int]) -> None:
    """Messages after the cursor come, and the fresh cursor is that of the node, not of the last message."""
    answer = stream_of("a", "ab", "c", "b", "c").ask("ab", cursor)
    assert ids(answer) == found
    assert answer.cursor == "e1-5"


def test_from_now_on_there_is_nothing_yet() -> None:
    """A client that begins now gets the node's cursor, no message, and no gap."""
    stream = stream_of("a", "a")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].closed_sequence = 2
    answer = stream.ask("a", Start.NOW)
    assert answer == Answer("e1-2", (), False, (), ())
    assert not answer.tells_something


def test_a_cursor_ahead_of_the_node_stays_what_it_is() -> None:
    """Nothing is answered from the past, and the cursor does not go back."""
    assert stream_of("a", "a").ask("a", 9) == Answer("e1-9", (), False, (), ())


def test_an_answer_has_at_most_so_many_messages() -> None:
    """With more to come the cursor is that of the last one given; with exactly as many there is no more."""
    stream = stream_of("a", "b", "a", "a", "b")
    answer = stream.ask("a", limit=2)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 3], True, "e1-3")
    answer = stream.ask("a", 3, limit=2)
    assert (ids(answer), answer.more, answer.cursor) == ([4], False, "e1-5")
    answer = stream.ask("a", limit=3)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 3, 4], False, "e1-5")
    answer = stream.ask("ab", limit=4)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 2, 3, 4], True, "e1-4")


@pytest.mark.parametrize(
    ("limit_bytes", "found"), [(1, [1]), (7, [1]), (8, [1, 2]), (15, [1, 2]), (16, [1, 2, 3]), (17, [1, 2, 3])]
)
def test_an_answer_ends_before_the_message_that_would_be_too_much(limit_bytes: int, found: list[int]) -> None:
    """The bytes of data count, just full is not too full, and one message always fits."""
    stream = Stream()
    for data in ('"x"', '"xxx"', '"xxxxxx"'):
        stream.add("a", 1.0, data)
    answer = stream.ask("a", limit_bytes=limit_bytes + len(found) * RECEIVED_OVERHEAD_BYTES)
    assert (ids(answer), answer.more, answer.cursor) == (found, len(found) < 3, f"e1-{len(found)}")


def test_a_gap_is_told_to_those_who_have_not_seen_what_was_dropped() -> None:
    """A cursor before the dropped message is told, one at it is not, and it is told whose channel and why."""
    stream = stream_of("a", "ab", "a", "b")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].drop_oldest("evicted")
    assert gaps(stream.ask("ab", 0)) == [("a", "evicted")]
    assert gaps(stream.ask("ba", 1)) == [("a", "evicted")]
    assert gaps(stream.ask("ab", 2)) == []
    assert gaps(stream.ask("b", 0)) == []
    assert ids(stream.ask("ab", 1)) == [2, 3, 4]
    stream.channels["b"].drop_oldest("evicted")
    assert gaps(stream.ask("ba", 1)) == [("b", "evicted"), ("a", "evicted")]


def test_a_gap_is_told_on_every_page_that_begins_before_its_end() -> None:
    """What page 1 passes by is dropped here, and may be kept on the node that gives page 2: so page 1 tells of it."""
    behind, ahead = stream_of("b", "a", "b", "a", "b"), stream_of("b", "a", "b", "a", "b")
    ahead.channels["a"].drop_oldest("evicted")
    ahead.channels["a"].drop_oldest("evicted")
    first = ahead.ask("ab", 0, limit=2)
    assert (ids(first), first.more, gaps(first)) == ([1, 3], True, [("a", "evicted")])
    assert (ids(behind.ask("ab", 3)), gaps(behind.ask("ab", 3))) == ([4, 5], [])
    assert gaps(ahead.ask("ab", 3, limit=1)) == [("a", "evicted")]
    assert gaps(ahead.ask("ab", 5)) == []


def test_who_has_no_cursor_misses_nothing() -> None:
    """A client that begins with all that is cached is told of no gap and no closing."""
    stream = stream_of("a", "a")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].closed_sequence = 1
    answer = stream.ask("a")
    assert (ids(answer), answer.gaps, answer.closed) == ([2], (), ())


def test_a_closing_is_told_to_those_who_have_not_seen_it() -> None:
    """A cursor before the closing is told, one at it is not, whether or not the channel lives again."""
    stream = stream_of("a", "b", "a")
    stream.channels["a"].closed_sequence = 2
    assert stream.ask("ab", 1).closed == ("a",)
    assert stream.ask("ab", 2).closed == ()
    assert stream.ask("b", 0).closed == ()
    assert stream.ask("a", 1).tells_something


def test_a_cursor_of_another_epoch_says_nothing_here() -> None:
    """Its client gets all that is cached, a gap for each channel, and a cursor of this epoch."""
    stream = stream_of("a", "b")
    for sequence in (0, 1, 99):
        answer = stream.ask("abc", Cursor("e0", sequence))
        assert ids(answer) == [1, 2]
        assert gaps(answer) == [("a", "lost"), ("b", "lost"), ("c", "lost")]
        assert answer.cursor == "e1-2"
        assert answer.closed == ()
    assert stream.ask("c", Cursor("e0", 1)).tells_something


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (2.0, 4.0, [2, 3]),
        (1.5, 4.5, [2, 3, 4]),
        (5.0, math.inf, [5]),
        (5.5, math.inf, []),
        (0.0, 1.0, []),
        (3.0, 3.0, []),
    ],
)
def test_a_time_range_includes_its_start_and_not_its_end(start: float, end: float, found: list[int]) -> None:
    """The range filters; the cursor moves on over what lies outside."""
    answer = stream_of("a", "b", "ab", "a", "b").ask("ab", start=start, end=end)
    assert (ids(answer), answer.more, answer.cursor) == (found, False, "e1-5")


def test_limit_and_cursor_go_together_with_a_time_range() -> None:
    """What the range leaves out does not count, and a chain of cursors comes to the end of it."""
    stream = stream_of("a", "b", "a", "a", "a")
    first = stream.ask("ab", 0, start=2.0, end=5.0, limit=2)
    assert (ids(first), first.more, first.cursor) == ([2, 3], True, "e1-3")
    last = stream.ask("ab", 3, start=2.0, end=5.0, limit=2)
    assert (ids(last), last.more, last.cursor) == ([4], False, "e1-5")
