"""Producers across orders that go on under another name, are restored or are lost, compared with the naive state."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from pushup.core.commands import Command, Continue, Entry, Expire, Published
from pushup.core.errors import PushUpError
from pushup.core.limits import Limits
from pushup.core.state import ReplicatedState
from pushup.core.state_transfer import restore

from .builders import EPOCH, draft
from .naive_state import NaiveState
from .random_entries import RandomProducers
from .saved_checkpoint import new_epoch

LIMITS = Limits(retention_seconds=10.0)


class Orders:
    """One order after the other, each with the producers that a node knew when the one before was lost."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = 1
        self.state = self.behind = ReplicatedState(LIMITS, epoch=EPOCH)
        self.naive = NaiveState(LIMITS, EPOCH)
        self.producers = RandomProducers(random)
        self.time = 1.0
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.03:
            self.lose()
        elif kind < 0.06:
            self.behind = restore(self.state.snapshot())
        elif kind < 0.09:
            self.apply(Continue(self.new_name()))
        elif kind < 0.12:
            self.time += self.random.choice((1.0, 30.0))
            self.apply(Expire())
        else:
            drafts = tuple([draft("a", data=f"{self.random.randrange(3)}") for _ in range(self.random.choice((1, 2)))])
            self.apply(self.producers.publication(drafts, self.random.choice(("", "key 1"))))

    def new_name(self) -> str:
        self.names += 1
        return f"e{self.names}"

    def apply(self, command: Command) -> None:
        cursor = self.state.cursor
        entry = Entry(cursor.epoch, cursor.sequence + 1, self.time, command)
        outcome, expected = self.state.apply(entry), self.naive.apply(entry)
        if isinstance(outcome, PushUpError):
            assert isinstance(expected, PushUpError)
            assert (type(outcome), outcome.more) == (type(expected), expected.more)
        else:
            assert outcome == expected
        lost = isinstance(outcome, Published) and outcome.after_loss
        is_old = isinstance(outcome, Published) and outcome.sequence < entry.sequence
        self.seen[f"{type(outcome).__name__}{' again' if is_old else ''}{' after a loss' if lost else ''}"] += 1
        self.check()

    def lose(self) -> None:
        """A node that knows all of the order begins another; perhaps with what a checkpoint has as well."""
        states = self.random.choice(([self.state], [self.state, self.behind], [self.behind, self.state]))
        self.state = self.behind = new_epoch(self.new_name(), *states)
        head = self.state.head
        by_place = sorted(self.naive.producers.items(), key=lambda item: item[1].outcome.sequence)
        self.naive = NaiveState(LIMITS, head.epoch, last=head.sequence, time=head.time, producers=dict(by_place))
        self.seen["a loss"] += 1
        self.check()

    def check(self) -> None:
        rows = [row for name in self.state.producers.names() if (row := self.state.producers.row(name)) is not None]
        assert [(row.owner, row.name, row.epoch, row.first, row.published) for row in rows] == [
            (*who, last.epoch, last.numbers.start, last.outcome) for who, last in self.naive.producers.items()
        ]


@pytest.mark.parametrize("seed", range(4))
def test_producers_are_kept_whatever_happens_to_the_order(seed: int) -> None:
    """Every outcome is what the protocol says, and each kind of it is seen."""
    orders = Orders(Random(seed))
    for _ in range(1500):
        orders.step()
    kinds = ("Published", "Published again", "Published after a loss", "Published again after a loss", "Duplicate",
             "ProducerConflict", "ProducerFenced", "a loss")  # fmt: skip
    assert min(orders.seen[kind] for kind in kinds) >= 3, orders.seen
