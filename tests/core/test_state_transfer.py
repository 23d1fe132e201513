"""Handing a state over in pieces while it changes: what arrives is the state as of the last piece, in every detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from random import Random

import msgspec
import pytest

from pushup.core.bounded_table import Remembered
from pushup.core.commands import Command, Configure, Continue, Entry
from pushup.core.snapshot import Changes, Snapshot, Stored, Tables
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import ROUNDS, Outgoing, Piece, restore

from .builders import EPOCH, Feed, publish
from .random_entries import LIMITS, random_commands

_rows = msgspec.json.Decoder(tuple[Stored, ...])
_changes = msgspec.json.Decoder(Changes)


def sent(piece: Piece | Changes) -> Piece | Changes:
    """The piece as another process gets it."""
    body = msgspec.json.encode(piece)
    return _changes.decode(body) if isinstance(piece, Changes) else _rows.decode(body)


def arrived(outgoing: Outgoing, between: Callable[[], object] = lambda: None) -> ReplicatedState:
    """The state that all pieces make, with something done before each."""
    incoming = Tables()
    while True:
        between()
        piece = sent(outgoing.next())
        if isinstance(piece, Changes):
            incoming.take(piece.rows)
            return restore(Snapshot(piece.head, incoming))
        incoming.take(piece)


def pieces_of(outgoing: Outgoing) -> tuple[list[Piece], Changes]:
    pieces: list[Piece] = []
    while not isinstance(piece := outgoing.next(), Changes):
        pieces.append(piece)
    return pieces, piece


def keys_in(rows: Iterable[Stored]) -> list[str]:
    return [row.key.removeprefix("keys/") for row in rows if row.key.startswith("keys/")]


class Source:
    """A state that random commands change."""

    def __init__(self, seed: str, limits: str) -> None:
        self.random = Random(seed)
        self.state = ReplicatedState(LIMITS[limits], epoch=EPOCH)
        self.commands = random_commands(self.random, names=tuple(f"c{n}" for n in range(12)))
        self.time = 1000.0

    def change(self, times: int) -> list[Entry]:
        """Apply the next commands, now and then one of those that only broadcasts append."""
        entries = []
        for _ in range(times):
            seconds, command = next(self.commands)
            self.time += seconds
            if self.random.random() < 0.03:
                command = self.rare()
            cursor = self.state.cursor
            entry = Entry(cursor.epoch, cursor.sequence + 1, self.time, command)
            self.state.apply(entry)
            entries.append(entry)
        return entries

    def rare(self) -> Command:
        if self.random.random() < 0.5:
            return Configure(LIMITS[self.random.choice(list(LIMITS))])
        return Continue(f"{EPOCH}{self.state.cursor.sequence}")


def hand_over(source: Source, outgoing: Outgoing, between: int) -> ReplicatedState:
    """All pieces, with up to `between` changes before each, and the state that is made of them."""
    return arrived(outgoing, lambda: source.change(source.random.randrange(between + 1)))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limits", LIMITS)
def test_what_arrives_is_the_state(limits: str, seed: int) -> None:
    """However much it changes meanwhile; and both remain equal, entry by entry."""
    source = Source(f"{limits} {seed}", limits)
    piece, last = source.random.choice((1, 3, 20)), source.random.choice((0, 5, 50))
    source.change(source.random.choice((0, 10, 150)))
    for _ in range(3):
        source.state.note_changes()
        outgoing = Outgoing(source.state, piece=piece, last=last)
        there = hand_over(source, outgoing, source.random.choice((0, 1, 4)))
        there.check()
        assert there.snapshot() == source.state.snapshot()
        for entry in source.change(40):
            there.apply(entry)
        assert there.snapshot() == source.state.snapshot()


def test_pieces_are_small(feed: Feed) -> None:
    """By count and by bytes; one message may be larger."""
    feed.state.note_changes()
    for number in range(35):
        feed.apply(publish(f"c{number}"), 1000.0)
    feed.apply(publish("large", data=f'"{"x" * 600_000}"'), 1000.0)
    feed.apply(publish("after"), 1000.0)
    pieces, _ = pieces_of(Outgoing(feed.state, piece=10))
    rows = [sum(row.key.startswith("messages/") for row in piece) for piece in pieces]
    assert [len(piece) for piece in pieces] == [10, 10, 10, 10, 10, 10, 10, 3, 1]
    assert sum(rows) == 37
    assert rows[-2:] == [3, 1], "a piece ends with the message that fills it"


def test_it_ends_although_changes_come_faster_than_they_are_read() -> None:
    """After some rounds; what has changed in the last one comes in one piece."""
    source = Source("fast", "age")
    source.change(20)
    source.state.note_changes()
    outgoing = Outgoing(source.state, piece=1, last=0, rounds=3)
    assert hand_over(source, outgoing, 20).snapshot() == source.state.snapshot()


def test_it_ends_although_there_is_always_some_change(feed: Feed) -> None:
    """After some rounds, though each is shorter than the one before."""
    for number in range(30):
        feed.apply(publish(f"c{number}"), 1000.0)
    feed.state.note_changes()
    outgoing, pieces = Outgoing(feed.state, piece=1000, last=0, rounds=3), 0
    while not isinstance(outgoing.next(), Changes):
        pieces += 1
        for number in range(20 - pieces):
            feed.apply(publish(f"c{number}"), 1001.0)
    assert pieces == 3


def test_the_last_piece_is_small(feed: Feed) -> None:
    """However much has changed while the others were read, as long as that becomes less."""
    for number in range(200):
        feed.apply(publish(f"c{number}"), 1000.0)
    feed.state.note_changes()
    outgoing = Outgoing(feed.state, piece=4, last=5)
    reads, began = count(), []

    def publish_some() -> None:
        began.append(outgoing.since)
        if (read := next(reads)) < 60:
            feed.apply(publish(f"c{read % 50}"), 1001.0)

    assert arrived(outgoing, publish_some).snapshot() == feed.state.snapshot()
    assert sum(map(len, feed.state.change_log.names(outgoing.since).values())) <= 5
    assert 2 <= len(set(began)) < ROUNDS


def test_keys_of_one_sequence_in_two_pieces(feed: Feed) -> None:
    """As a new epoch may have them, which begins with the keys of a log and of a node."""
    names = ["before", "one", "three", "two", "after"]
    for name, sequence in zip(names, (1, 2, 2, 2, 3), strict=True):
        feed.state.keys.restore(Remembered(name, EPOCH, sequence, 1, 1000.0, "f"))
    feed.state.note_changes()
    assert arrived(Outgoing(feed.state, piece=2)).keys.names() == names


def test_keys_that_are_read_twice_are_there_once(feed: Feed) -> None:
    """As when they come between the beginning and the first piece: then the last piece has them, too."""
    feed.apply(publish("a", key="before"), 1000.0)
    feed.state.note_changes()
    outgoing, incoming = Outgoing(feed.state), Tables()
    feed.apply(publish("a", key="one"), 1000.0)
    feed.apply(publish("a", key="two"), 1000.0)
    pieces, last = pieces_of(outgoing)
    assert [keys_in(piece) for piece in pieces] == [["before", "one", "two"]]
    assert keys_in(last.rows) == ["one", "two"]
    for piece in (*pieces, last.rows):
        incoming.take(piece)
    assert restore(Snapshot(last.head, incoming)).keys.names() == ["before", "one", "two"]
