"""What a state knows of a message: kept or why dropped, and what a client at a cursor gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from pushup.core.commands import Close, Continue, Create, Erase, Expire, Publish
from pushup.core.cursor import Cursor
from pushup.core.drops import REMEMBERED_DROPS, Drops
from pushup.core.limits import ChannelPolicy
from pushup.core.state_transfer import restore
from pushup.core.tracing import ChannelView, Drop, Reader, Trace, trace

from .builders import EPOCH, Feed, batch, draft, message, poll, publish

BIG = '"' + "x" * 9000 + '"'


def at(sequence: int, epoch: str = EPOCH) -> Cursor:
    return Cursor(epoch, sequence)


def found(made: Feed, sequence: int, reader: int | None = None, epoch: str = EPOCH) -> Trace:
    trace_of_it = trace(made.state, at(sequence, epoch), None if reader is None else at(reader))
    assert trace_of_it is not None
    return trace_of_it


def test_a_kept_message() -> None:
    """Its channels, its time, its size, and the key that it was published with."""
    made = Feed()
    made.apply(Publish((draft("a", "b", data="123"),), None, "app"), 1000.0)
    assert found(made, 1) == Trace("e1-1", "kept", ("a", "b"), ("a", "b"), 1000.0, 3, "app")


@pytest.mark.interpreted
def test_what_was_dropped_is_not_searched_for_a_kept_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes milliseconds."""
    made = Feed()
    made.apply(publish("a"), 1000.0)
    monkeypatch.setattr(Drops, "find", None)
    assert found(made, 1).fate == "kept"


def dropped(made: Feed, sequence: int) -> Drop:
    """Why it was dropped; what else was known of the message still is."""
    gone = found(made, sequence)
    assert (gone.fate, gone.channels, gone.kept_by, gone.time, gone.bytes, gone.key) == (
        "dropped", ("a",), (), 1000.0, 1, "app",
    )  # fmt: skip
    assert gone.dropped is not None
    return gone.dropped


def owned(**limits: Any) -> Feed:
    made = Feed(**limits)
    made.apply(Publish((draft("a"),), None, "app"), 1000.0)
    return made


def test_why_it_was_dropped() -> None:
    """Each reason, with the time of the entry that dropped it, and the setting that drove it out."""
    made = owned(retention_seconds=60.0)
    made.apply(Expire(), 1061.0)
    assert dropped(made, 1) == Drop("expired", 1061.0, "retention_seconds")
    made = owned(retention_messages=1)
    for _ in range(2):
        made.apply(publish("b"), 1000.0)
    made.apply(Close("a"), 1002.0)
    assert dropped(made, 1) == Drop("closed", 1002.0)
    made = owned()
    made.apply(Erase("message", "", at(1)), 1003.0)
    assert dropped(made, 1) == Drop("deleted", 1003.0)
    assert found(made, 1, reader=0).reader == Reader("e1-0", False, (ChannelView("a", False, "deleted"),))


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"retention_messages": 2}, "retention_messages"),
        ({"retention_bytes": 20_000}, "retention_bytes"),
        ({"channels": (ChannelPolicy(prefix="a", retention_bytes=20_000),)}, "retention_bytes of a*"),
    ],
)
def test_which_limit_evicted_it(limits: dict[str, Any], limit: str) -> None:
    made = owned(**limits)
    for _ in range(2):
        made.apply(publish("a", data=BIG), 1004.0)
    assert dropped(made, 1) == Drop("evicted", 1004.0, limit)


def test_one_of_its_channels_keeps_it() -> None:
    """And a reader is told of the other what a poll would tell."""
    made = Feed(retention_messages=1)
    made.apply(publish("a", "b"), 1000.0)
    made.apply(publish("a"), 1001.0)
    half = found(made, 1, reader=0)
    assert (half.fate, half.kept_by) == ("kept", ("b",))
    assert half.reader == Reader(
        "e1-0", False, (ChannelView("a", False, "evicted"), ChannelView("b", True, None)),
    )  # fmt: skip


def test_one_of_its_channels_is_closed() -> None:
    made = Feed()
    made.apply(publish("a", "b"), 1000.0)
    made.apply(Close("a"), 1001.0)
    half = found(made, 1, reader=0)
    assert (half.fate, half.kept_by) == ("kept", ("b",))
    assert half.reader == Reader("e1-0", False, (ChannelView("a", False, "closed"), ChannelView("b", True, None)))


def test_a_reader_that_has_passed_it_gets_nothing_of_it() -> None:
    """Whether it is kept or not."""
    made = Feed(retention_messages=1)
    made.apply(publish("a"), 1000.0)
    made.apply(publish("a"), 1001.0)
    for sequence in (1, 2):
        reader = found(made, sequence, reader=2).reader
        assert reader == Reader("e1-2", True, (ChannelView("a", False, None),))
        assert not made.ask(poll("a", cursor="e1-2")).gaps


def test_a_gap_before_it_is_not_its_own() -> None:
    """A poll from there gets a gap, and the message as well."""
    made = Feed(retention_messages=1)
    made.apply(publish("a"), 1000.0)
    made.apply(publish("a"), 1001.0)
    assert found(made, 2, reader=0).reader == Reader("e1-0", False, (ChannelView("a", True, None),))


def test_a_channel_that_is_forgotten() -> None:
    """The gap that its readers get covers the message."""
    made = Feed(retention_seconds=10.0, channel_ttl_seconds=10.0)
    made.apply(publish("a"), 1000.0)
    for time in (1011.0, 1030.0):
        made.apply(Expire(), time)
    assert made.state.channels.remembered("a") is None
    assert found(made, 1, reader=0).reader == Reader("e1-0", False, (ChannelView("a", False, "expired"),))


def test_a_batch() -> None:
    """Each of its messages has an id of its own, and is passed on its own."""
    made = Feed()
    made.apply(batch(draft("a"), draft("b")), 1000.0)
    assert [found(made, n).channels for n in (1, 2)] == [("a",), ("b",)]
    readers = [found(made, 1, reader=n).reader for n in (0, 1, 2)]
    assert [(reader.has_passed, reader.channels[0].delivers) for reader in readers if reader] == [
        (False, True), (True, False), (True, False),
    ]  # fmt: skip


def test_what_is_no_message() -> None:
    """An entry that published nothing, another order, and an ephemeral message that is gone."""
    made = Feed()
    made.apply(Create("a"), 1000.0)
    made.apply(batch(draft("a", ephemeral=True)), 1000.0)
    made.apply(Expire(), 1010.0)
    assert [trace(made.state, at(1)), trace(made.state, at(2)), trace(made.state, at(1, "e2"))] == [None] * 3


def test_what_is_not_applied_yet() -> None:
    """Its reader is before it, wherever it is."""
    made = Feed()
    assert found(made, 1, reader=0) == Trace("e1-1", "ahead", reader=Reader("e1-0", False, ()))


def test_an_order_that_goes_on_under_a_new_name() -> None:
    """Ids of the old name are found as far as it was good; what was beyond that is lost, and so are its readers."""
    made = Feed(retention_messages=1)
    made.apply(publish("a"), 1000.0)
    made.apply(Continue("e2"), 1001.0)
    made.apply(publish("a", "b"), 1002.0)
    assert found(made, 1).id == "e1-1"
    assert found(made, 1, epoch="e2").id == "e1-1"
    assert found(made, 3, epoch="e2").id == "e2-3"
    assert found(made, 3) == Trace("e1-3", "lost")
    assert found(made, 1, reader=1).reader == Reader("e1-1", True, (ChannelView("a", False, None),))
    assert found(made, 1, reader=9).reader == Reader("e1-9", True, (ChannelView("a", False, "lost"),))
    assert found(made, 3, reader=1, epoch="e2").reader == Reader(
        "e1-1", False, (ChannelView("a", True, None), ChannelView("b", True, None)),
    )  # fmt: skip


def test_an_order_whose_first_name_had_no_messages() -> None:
    """None of its ids is of this order, but they are not of another one."""
    made = Feed()
    made.apply(Continue("e2"), 1000.0)
    assert found(made, 1) == Trace("e1-1", "lost")


def test_a_reader_of_another_order() -> None:
    """It gets everything that is kept, and a gap up to what is not."""
    made = Feed(retention_messages=1)
    made.apply(publish("a"), 1000.0)
    made.apply(publish("a"), 1000.0)
    for other in ("d", "e2"):  # named earlier and later
        views = [trace(made.state, at(n), at(7, other)) for n in (1, 2)]
        assert [view.reader for view in views if view] == [
            Reader(f"{other}-7", False, (ChannelView("a", False, "lost"),)),
            Reader(f"{other}-7", False, (ChannelView("a", True, None),)),
        ]


def test_a_state_that_was_restored() -> None:
    """It does not know what was dropped before, and says up to when."""
    made = Feed(retention_messages=1)
    for n in range(3):
        made.apply(publish("a"), 1000.0 + n)
    state = restore(made.state.snapshot())
    state.cache.drops.skip(state.cursor.sequence, state.time, forget=True)
    made.use(state)
    reader = Reader("e1-0", False, ())
    assert found(made, 1, reader=0) == Trace("e1-1", "forgotten", dropped_before=1002.0, reader=reader)
    assert found(made, 3).fate == "kept"
    made.apply(publish("a"), 1003.0)
    assert found(made, 3).dropped == Drop("evicted", 1003.0, "retention_messages")
    made.apply(Create("b"), 1004.0)
    assert trace(made.state, at(5)) is None
    state.cache.drops.skip(5, 1004.0, forget=True)
    assert found(made, 5).fate == "forgotten"


def test_no_more_are_remembered() -> None:
    """Beyond the limit, the one that was dropped first is forgotten; what came after it is still known for certain."""
    drops = Drops()
    drops.time = 2000.0
    for sequence in (5, 3, *range(6, REMEMBERED_DROPS + 4)):
        drops.add(message(sequence, 1000.0, "a"), "closed")
    assert drops.find(5) is not None
    assert (drops.forgotten_sequence, drops.forgotten_at) == (0, 0.0)
    drops.time = 2001.0
    for sequence in (70_000, 70_001):
        drops.add(message(sequence, 1000.0, "a"), "closed")
    assert (drops.find(5), drops.find(3)) == (None, None)
    assert drops.find(6) is not None
    assert (drops.forgotten_sequence, drops.forgotten_at) == (5, 2000.0)
    assert drops.counts["closed"] == REMEMBERED_DROPS + 2
