"""A subscription: one held poll (PushUp §3.2: the channel keeps it open for a time); and who waits on one name."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from pushup.core.answer import Answer
from pushup.core.poll import Selection
from pushup.core.time_tree import TimeTree


class Holder(Protocol):
    """What holds a poll open, and takes its answer."""

    def answer(self, answer: Answer) -> None: ...


H = TypeVar("H")
"""What holds a poll open, whatever the caller uses: passed in with the poll and returned with the answer."""


EPOCH_ENDED = -1


class Subscription(Generic[H]):
    """A poll that is held until one of its channels has something for it, or until its deadline; `stays` as of a poll.

    Its life is a table in `poll_index`; only `PollIndex` changes it. `waiters`: where it waits, one for each of its
    channels. `seen`: the client has seen all entries of its channels up to this sequence; `EPOCH_ENDED` if they were of
    an epoch that is over. It is the same for all subscriptions that wait for the same next message, so that their
    answers are equal and are made once. `holder` is None once it is over. `generation`: which of the states that its
    node has had it refers to (`poll_migration`).
    """

    __slots__ = ("deadline", "generation", "holder", "seen", "selection", "stays", "waiters")

    def __init__(
        self,
        selection: Selection,
        waiters: tuple[ChannelWaiters, ...],
        seen: int,
        deadline: float,
        holder: H,
        generation: int = 0,
        stays: bool = False,
    ) -> None:
        self.selection = selection
        self.waiters = waiters
        self.seen = seen
        self.deadline = deadline
        self.holder: H | None = holder
        self.generation = generation
        self.stays = stays


class ChannelWaiters:
    """The subscriptions on one name of one node. Only `PollIndex` changes it.

    `tree`: those that wait, by deadline; woken ones are no longer in it. `subscribers` counts both. `is_awaited`: no
    channel has this name. `missed_sequence`: up to this sequence something may have been dropped of which the channel
    no longer tells, because it was forgotten or the whole state was replaced. `generation`: as of a subscription.

    Where there is a channel they are kept without subscribers, too: most clients poll again at once.
    """

    __slots__ = ("generation", "is_awaited", "missed_sequence", "name", "subscribers", "tree")

    def __init__(self, name: str, is_awaited: bool, generation: int) -> None:
        self.name = name
        self.is_awaited = is_awaited
        self.generation = generation
        self.missed_sequence = 0
        self.subscribers = 0
        self.tree: TimeTree[Subscription[Any]] | None = None  # made when it is needed

    def check(self) -> None:
        """Assert the invariants."""
        assert self.subscribers > 0 or not self.is_awaited, self.name
        if self.tree is not None:
            self.tree.check()
            assert 0 < len(self.tree) <= self.subscribers
