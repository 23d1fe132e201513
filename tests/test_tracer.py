"""Which publishers a node knows to have answered itself."""

from __future__ import annotations

from pushup.core.commands import Published
from pushup.core.cursor import Cursor
from pushup.node.tracing import ANSWERED, Tracer
from tests.core.builders import EPOCH, Feed, batch, draft


class Node:
    """A tracer beside a state."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.tracer = Tracer(state=lambda: self.feed.state, members=list, now=lambda: 1000.0, name="n")

    def publish(self, count: int, *, here: bool) -> Published:
        """A publication of this many messages, accepted here or by another node."""
        outcome = self.feed.apply(batch(*[draft("a")] * count), 1000.0)
        assert isinstance(outcome, Published)
        if here:
            self.tracer.answered(outcome)
        return outcome

    def answered(self, *sequences: int) -> list[bool | None]:
        found = [self.tracer.trace(Cursor(EPOCH, sequence), None) for sequence in sequences]
        assert {trace.node for trace in found if trace} == {"n"}
        return [None if trace is None else trace.acknowledged for trace in found]


def test_who_answered() -> None:
    """Each message of a batch counts. Far back it is certain only of those that were answered."""
    node = Node()
    node.publish(1, here=False)
    node.publish(2, here=True)
    node.publish(1, here=False)
    assert node.answered(1, 2, 3, 4) == [False, True, True, False]
    node.publish(ANSWERED // 2 - 3, here=False)
    assert node.answered(1, 2, 3, 4) == [None, True, True, False]
    node.publish(3, here=False)
    assert node.answered(1, 2, 3, 4) == [None, True, True, None]


def test_a_later_publication_in_the_same_place() -> None:
    """It is remembered instead; and not the earlier one again, if its publisher repeats it."""
    node = Node()
    first = node.publish(1, here=True)
    node.publish(ANSWERED - 1, here=False)
    later = node.publish(1, here=True)
    assert later.sequence == first.sequence + ANSWERED
    node.tracer.answered(first)
    assert node.answered(first.sequence, later.sequence) == [None, True]
