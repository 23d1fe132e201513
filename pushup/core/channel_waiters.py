"""Who waits on one channel name. The channel need not exist: clients may wait before anybody publishes on it."""

from __future__ import annotations

from typing import Any

from pushup.core.time_tree import TimeTree


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
        # Made when it is needed. It contains subscriptions; their type is not used here, because it refers to this one.
        self.tree: TimeTree[Any] | None = None

    def check(self) -> None:
        """Assert the invariants."""
        assert self.subscribers > 0 or not self.is_awaited, self.name
        if self.tree is not None:
            self.tree.check()
            assert 0 < len(self.tree) <= self.subscribers
