"""Channels by the second in which they are due: the same order whatever order they came in."""

from __future__ import annotations

from operator import attrgetter
from random import Random

import pytest

from pushup.core.channel import Channel
from pushup.core.time_tree import DueChannels


def channel(id_: int, due: int) -> Channel:
    made = Channel(str(id_))
    made.id, made.due = id_, due
    return made


@pytest.mark.parametrize("seed", range(30))
def test_they_come_by_second_and_id(seed: int) -> None:
    """Added in any order, while others are removed, and while those that are due are taken."""
    random = Random(seed)
    due = DueChannels(attrgetter("id"))
    model: list[Channel] = []
    for step in range(400):
        action = random.random()
        if action < 0.55:
            new = channel(random.randrange(10**9), random.randrange(5))
            due.add(new)
            model.append(new)
        elif action < 0.65 and model:
            gone = random.choice(model)
            due.discard(gone)
            model.remove(gone)
        else:
            time = random.randrange(5)
            model.sort(key=attrgetter("due", "id"))
            expected = model[0] if model and model[0].due <= time else None
            assert due.first(time) is expected
            if expected is not None and random.random() < 0.8:
                due.discard(expected)
                model.remove(expected)
                if random.random() < 0.3:  # it comes again, with another place
                    expected.id = random.randrange(10**9)
                    due.add(expected)
                    model.append(expected)
        if step % 20 == 0:
            due.check()
            assert list(due) == sorted(model, key=attrgetter("due", "id"))


def test_little_is_looked_at_for_each() -> None:
    """30,000 channels of one second, added in a random order, are looked at once or twice each."""
    looked = 0

    def key(channel: Channel) -> int:
        nonlocal looked
        looked += 1
        return channel.id

    due = DueChannels(key)
    for id_ in Random(1).sample(range(1, 30_001), 30_000):
        due.add(channel(id_, 7))
    looked = 0
    for id_ in range(1, 30_001):
        first = due.first(7)
        assert first is not None
        assert first.id == id_
        due.discard(first)
    assert looked < 3 * 30_000
