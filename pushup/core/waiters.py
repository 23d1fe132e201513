"""Who waits on one channel name. It outlives the channel: a name can be waited for before anybody publishes on it."""

from __future__ import annotations

from typing import Any

from pushup.core.time_tree import TimeTree


class Waiters:
    """The subscriptions on one name of one node.

    `tree`: those that wait, by deadline; woken ones are no longer in it. `subscribers` counts both until they are
    answered. `is_awaited`: there is no such channel. `missed_sequence`: up to here something was dropped that the
    channel itself no longer tells of, because it was forgotten or the whole state was replaced.
    """

    __slots__ = ("is_awaited", "missed_sequence", "name", "subscribers", "tree")

    def __init__(self, name: str, *, is_awaited: bool) -> None:
        self.name = name
        self.is_awaited = is_awaited
        self.missed_sequence = 0
        self.subscribers = 0
        # Made when it is needed. In it are subscriptions, which know their `Waiters`; here they only have deadlines.
        self.tree: TimeTree[Any] | None = None

    def add(self, deadline: float, subscription: object) -> None:
        if self.tree is None:
            self.tree = TimeTree()
        self.tree.add(deadline, subscription)

    def discard(self, deadline: float, subscription: object) -> None:
        """Remove the subscription if it is in the tree; a woken one is not."""
        if self.tree is not None:
            self.tree.discard(deadline, subscription)
            if not self.tree:
                self.tree = None

    def check(self) -> None:
        """Assert the invariants."""
        assert self.subscribers > 0, self.name
        if self.tree is not None:
            self.tree.check()
            assert 0 < len(self.tree) <= self.subscribers
