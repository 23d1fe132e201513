"""A subscription: one held poll (PushUp §3.2: the channel keeps it open for a time)."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from pushup.core.answer import Answer
from pushup.core.channel_waiters import ChannelWaiters
from pushup.core.poll import Selection


class Holder(Protocol):
    """What holds a poll open, and takes its answer."""

    def answer(self, answer: Answer) -> None: ...


H = TypeVar("H")
"""What holds a poll open, whatever the caller uses: passed in with the poll and returned with the answer."""


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


EPOCH_ENDED = -1
