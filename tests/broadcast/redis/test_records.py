"""What a node reads from the log, as values: ends, chains of entries, reports of nodes."""

from __future__ import annotations

import msgspec
import pytest

from pushup.broadcast.redis.checkpoint_loader import Chain, SavedHead
from pushup.broadcast.redis.records import Count, LogEntry, Tail, Vouchers, log_entry, tail_of
from pushup.core.commands import Continue, Entry, Publish
from pushup.core.cursor import Cursor, PastEpoch
from pushup.core.limits import Limits
from pushup.core.snapshot import empty_head
from tests.core.builders import draft, publish


@pytest.mark.parametrize(
    ("epoch", "sequence", "includes"),
    [("e1", 4, True), ("e1", 5, True), ("e1", 6, False), ("e0", 4, False), ("e2", 4, False)],
)
def test_what_the_log_has_reached(epoch: str, sequence: int, includes: bool) -> None:
    """An entry of this epoch, up to the end; sequences of others mean nothing."""
    assert Tail("e1", 5, b"t").includes(Cursor(epoch, sequence)) is includes


def test_the_end_of_no_log() -> None:
    """Redis has none of its fields."""
    assert tail_of(None, None, None, None, None, None, None, None) == Tail("", 0, b"", "", 0, "")
    assert tail_of(b"e1", b"5", b"t", None, None, None, None, None) == Tail("e1", 5, b"t", "", 0) == Tail("e1", 5, b"t")


def test_what_is_no_name_is_no_cluster() -> None:
    """Epochs are named after it, and those names are numbers."""
    names = (b"e1", b"1a1fb6718005d0a1b", b"", b"E1", b"x", b"e1 ", b"\xff", b"0" * 33)
    assert [tail_of(b"e1", b"5", b"t", None, None, name, None, None).cluster for name in names] == [
        "e1", "1a1fb6718005d0a1b", *[""] * 6
    ]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        Publish((draft("a", event="e"),), "k", "ci"),
        Publish((draft("a", event="e"), draft("b", ephemeral=True)), "k", "ci"),
    ],
    ids=["one", "batch"],
)
def test_a_publication_comes_from_the_log_as_it_was(command: Publish) -> None:
    """Of one message or of several, with its key and its owner."""
    fields = {b"command": msgspec.json.encode(command), b"time": b"1.5", b"tag": b"t", b"after": b"t0"}
    logged = log_entry("e1", b"%d-1" % (6 + command.width), [part for field in fields.items() for part in field])
    assert logged.entry == Entry("e1", 7, 1.5, command)


def test_more_than_all_may_vouch() -> None:
    """A node may have vouched whose lease has ended since."""
    assert Vouchers("run", frozenset("a"), {"a": frozenset("a"), "b": frozenset()}).are_all
    assert not Vouchers("run", frozenset("ac"), {"a": frozenset("a"), "b": frozenset()}).are_all


def chain() -> Chain:
    return Chain(SavedHead(empty_head("e1", Limits()), "e1"))


def entry(number: int, after: bytes) -> LogEntry:
    return LogEntry(Entry("e1", number, 1.0, publish("a")), number, b"t%d" % number, after)


def test_a_chain_leads_to_its_end_only() -> None:
    """Neither to another place nor to another entry at that place."""
    entries = chain()
    assert entries.leads_to(Tail("e1", 0, b"e1"))
    for number, after in ((1, b"e1"), (2, b"t1"), (3, b"t2")):
        entries.add(entry(number, after))
    assert entries.leads_to(Tail("e1", 3, b"t3"))
    for sequence, tag in ((3, b"t1"), (3, b"t5"), (2, b"t3"), (4, b"t3")):
        assert not entries.leads_to(Tail("e1", sequence, tag))


@pytest.mark.parametrize("after", [b"a", b"z"])
def test_a_chain_that_is_broken_leads_nowhere(after: bytes) -> None:
    """Although its last entries follow each other."""
    entries = chain()
    for number, before in ((1, b"e1"), (2, after), (3, b"t2")):
        entries.add(entry(number, before))
    assert not entries.leads_to(Tail("e1", 3, b"t3"))


def test_a_chain_with_a_new_name() -> None:
    """The former name is good up to the entry before the one that ends it."""
    entries = chain()
    entries.add(entry(1, b"e1"))
    entries.add(LogEntry(Entry("e1", 2, 1.0, Continue("e2")), 2, b"t2", b"t1"))
    assert (entries.epoch, entries.past, entries.sequence) == ("e2", (PastEpoch("e1", 1),), 2)


def test_how_many_items_make_a_piece() -> None:
    """As many as fit by the size of the last, at most twice as many, never too many; nothing is known from none."""
    count = Count(100, 1000, piece_bytes=8)
    count.had(0, 0)
    assert count.next == 100
    count.had(1, 1)
    assert count.next == 8
    count.had(8, 0)
    assert count.next == 16
    count.had(16, 10**6)
    assert count.next == 1
    for _ in range(12):
        count.had(count.next, 0)
    assert count.next == 1000
