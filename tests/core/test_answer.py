"""Answers to polls: messages, gaps, closed channels and the next cursor."""

from __future__ import annotations

import math

import msgspec
import pytest
from msgspec import Raw

from pushup.core.answer import Answer, Gap, Received
from pushup.core.channel import Channel
from pushup.core.cursor import Cursor, PastEpoch, PastEpochs, Start
from pushup.core.poll import Selection
from pushup.core.reading import RECEIVED_OVERHEAD_BYTES, read

from .builders import EPOCH, gaps, ids
from .builders import message as message_of


class Stream:
    """Channels by name, and messages published on them, one per entry."""

    def __init__(self) -> None:
        self.channels: dict[str, Channel] = {}
        self.last = 0

    def add(self, names: str, time: float = 1.0, data: str = "1") -> None:
        self.last += 1
        message = message_of(self.last, time, *names, data=data)
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
    """Messages 1, 2, ... on these channels, published at times 1, 2, ..."""
    stream = Stream()
    for time, names in enumerate(messages, 1):
        stream.add(names, float(time))
    return stream


def test_an_answer_encodes_to_the_json_of_the_http_api() -> None:
    """Field names and their order are those of docs/guide/http.md, and data is left as it was written."""
    stream = Stream()
    stream.add("ab", 1.5, '{"q": 1.0}')
    assert msgspec.json.encode(stream.ask("ba")) == (
        b'{"cursor":"e1-1","messages":[{"id":"e1-1","time":1.5,"channels":["b","a"],"data":{"q": 1.0}}],'
        b'"more":false,"gaps":[],"closed":[]}'
    )
    assert msgspec.json.encode(Answer("e1-1", (), False, (Gap("a", "expired", "e1-1"),), ("b",))) == (
        b'{"cursor":"e1-1","messages":[],"more":false,'
        b'"gaps":[{"channel":"a","reason":"expired","until":"e1-1"}],"closed":["b"]}'
    )


def test_several_channels_are_merged_and_each_message_comes_once() -> None:
    """Messages are sorted by sequence, and each lists its channels in the order they were asked for."""
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
    """A poll returns the messages after its cursor, and the new cursor is the node's, not that of the last message."""
    answer = stream_of("a", "ab", "c", "b", "c").ask("ab", cursor)
    assert ids(answer) == found
    assert answer.cursor == "e1-5"


def test_a_poll_from_now_returns_only_a_cursor() -> None:
    stream = stream_of("a", "a")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].closed_sequence = 2
    answer = stream.ask("a", Start.NOW)
    assert answer == Answer("e1-2", (), False, (), ())
    assert not answer.tells_something


def test_a_cursor_ahead_of_the_node_does_not_move_back() -> None:
    assert stream_of("a", "a").ask("a", 9) == Answer("e1-9", (), False, (), ())


def test_an_answer_has_at_most_limit_messages() -> None:
    """With more to come, the cursor is that of the last message returned; otherwise it is the node's."""
    stream = stream_of("a", "b", "a", "a", "b")
    answer = stream.ask("a", limit=2)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 3], True, "e1-3")
    answer = stream.ask("a", 3, limit=2)
    assert (ids(answer), answer.more, answer.cursor) == ([4], False, "e1-5")
    answer = stream.ask("a", limit=3)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 3, 4], False, "e1-5")
    answer = stream.ask("ab", limit=4)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 2, 3, 4], True, "e1-4")


@pytest.mark.parametrize("fit", [1, 2, 3])
def test_an_answer_ends_before_the_message_that_exceeds_its_size(fit: int) -> None:
    """Data counts, and an overhead for each name; exactly the limit fits, a byte more does not, except alone."""
    stream, texts = Stream(), ('"x"', '"xxx"', '"xxxxxx"')
    for text in texts:
        stream.add("ab", 1.0, text)
    size = sum(len(text) + 2 * RECEIVED_OVERHEAD_BYTES for text in texts[:fit])
    answer = stream.ask("ab", limit_bytes=size)
    assert (ids(answer), answer.more, answer.cursor) == ([1, 2, 3][:fit], fit < 3, f"e1-{fit}")
    assert ids(stream.ask("ab", limit_bytes=size - 1)) == [1, 2, 3][: max(fit - 1, 1)]


def test_a_cursor_before_a_dropped_message_gets_a_gap() -> None:
    """The gap names the channel and the reason; a cursor at the dropped message gets none."""
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


def test_a_message_does_not_name_a_channel_that_has_dropped_it() -> None:
    """Or it would say that the gap of this channel ends before it, and who starts there would miss what follows."""
    stream = stream_of("bc", "c", "c")
    stream.channels["c"].drop_oldest("evicted")
    stream.channels["c"].drop_oldest("evicted")
    for cursor in (0, Start.EARLIEST):
        answer = stream.ask("bc", cursor)
        assert [(m.id, m.channels) for m in answer.messages] == [("e1-1", ("b",)), ("e1-3", ("c",))]
    assert stream.ask("bc", 0).gaps == (Gap("c", "evicted", "e1-2"),)
    assert stream.ask("bc", 1).gaps == (Gap("c", "evicted", "e1-2"),)
    assert stream.ask("bc", 2).gaps == ()


def test_a_gap_ends_with_the_last_message_that_was_dropped() -> None:
    """Of another epoch it ends there, too, or where the present one begins; on each page, even beyond that."""
    stream = stream_of("a", "ab", "a", "b")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].drop_oldest("evicted")
    assert stream.ask("ab", 0, limit=1).gaps == (Gap("a", "evicted", "e1-2"),)
    assert stream.ask("abc", Cursor("e0", 9)).gaps == tuple(
        Gap(name, "lost", until) for name, until in (("a", "e1-2"), ("b", "e1-0"), ("c", "e1-0"))
    )
    past = PastEpochs((PastEpoch("e0", 3),))
    channels = [stream.channels[name] for name in "ab"]
    answer = read(channels, Selection(("a", "b")), Cursor("e0", 4), Cursor(EPOCH, 4), 100_000, past=past)
    assert answer.gaps == (Gap("a", "lost", "e1-3"), Gap("b", "lost", "e1-3"))
    assert ids(answer) == [4]


def test_every_page_that_starts_before_the_end_of_a_gap_reports_it() -> None:
    """Another node may still keep the message and serve page 2 without a gap, so page 1 has to report it."""
    behind, ahead = stream_of("b", "a", "b", "a", "b"), stream_of("b", "a", "b", "a", "b")
    ahead.channels["a"].drop_oldest("evicted")
    ahead.channels["a"].drop_oldest("evicted")
    first = ahead.ask("ab", 0, limit=2)
    assert (ids(first), first.more, gaps(first)) == ([1, 3], True, [("a", "evicted")])
    assert (ids(behind.ask("ab", 3)), gaps(behind.ask("ab", 3))) == ([4, 5], [])
    assert gaps(ahead.ask("ab", 3, limit=1)) == [("a", "evicted")]
    assert gaps(ahead.ask("ab", 5)) == []


def test_a_client_without_a_cursor_has_missed_nothing() -> None:
    stream = stream_of("a", "a")
    stream.channels["a"].drop_oldest("expired")
    stream.channels["a"].closed_sequence = 1
    answer = stream.ask("a")
    assert (ids(answer), answer.gaps, answer.closed) == ([2], (), ())


def test_a_cursor_before_a_closing_gets_the_closed_channel() -> None:
    """A cursor at the closing does not, whether or not the channel was opened again."""
    stream = stream_of("a", "b", "a")
    stream.channels["a"].closed_sequence = 2
    assert stream.ask("ab", 1).closed == ("a",)
    assert stream.ask("ab", 2).closed == ()
    assert stream.ask("b", 0).closed == ()
    assert stream.ask("a", 1).tells_something


def test_a_cursor_of_another_epoch_gets_everything_and_a_gap() -> None:
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
    """Messages outside of the range are left out, and the cursor moves past them."""
    answer = stream_of("a", "b", "ab", "a", "b").ask("ab", start=start, end=end)
    assert (ids(answer), answer.more, answer.cursor) == (found, False, "e1-5")


def test_limit_and_cursor_apply_within_a_time_range() -> None:
    stream = stream_of("a", "b", "a", "a", "a")
    first = stream.ask("ab", 0, start=2.0, end=5.0, limit=2)
    assert (ids(first), first.more, first.cursor) == ([2, 3], True, "e1-3")
    last = stream.ask("ab", 3, start=2.0, end=5.0, limit=2)
    assert (ids(last), last.more, last.cursor) == ([4], False, "e1-5")
