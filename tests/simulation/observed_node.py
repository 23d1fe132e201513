"""A node that counts what its turns cost, and notes the dangerous states that it gets into.

The cost is in units of work, which do not depend on the machine. A unit is about 10 us: one message put on one channel,
one message or channel expired, restored or encoded, one poll looked at. docs/performance.md has the real time of each;
`python -m loadtest stalls` measures the turns of a real server.
"""

from __future__ import annotations

import math
from typing import Any

from pushup.core.answer import Answer
from pushup.core.commands import Entry, Expire, Outcome, Publish
from pushup.core.cursor import Cursor
from pushup.core.poll import Poll
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Holder, Subscription
from pushup.node import Node
from tests.simulation.world import World

BUG = "a bug that only this node has"
"""What the error says that an observed node is told to make; any other is one of PushUp's own."""


class ObservedNode(Node[Holder]):
    """Does what a node does, and tells the world of it."""

    def __init__(self, world: World, **parts: Any) -> None:
        super().__init__(**parts)
        self._world = world

    def poll(self, poll: Poll, holder: Holder, at_most: float = math.inf) -> Answer | Subscription[Holder]:
        cursor, here = poll.cursor, self.cursor
        if isinstance(cursor, Cursor) and here.epoch:
            if cursor.epoch != here.epoch:
                self._world.reach("a poll's cursor was of an epoch that its node does not have")
            elif cursor.sequence > here.sequence:
                self._world.reach("a poll's cursor was ahead of its node")
        return super().poll(poll, holder, at_most)

    def apply(self, entry: Entry) -> Outcome:
        command = entry.command
        if isinstance(command, Publish) and f"poison for {self._name} ".encode() in bytes(command.messages[0].data):
            raise RuntimeError(BUG)
        before = self.state.message_count + len(self.state.channels)
        outcome = super().apply(entry)
        due = self.state.next_expiry
        if isinstance(command, Expire) and due is not None and due <= entry.time:
            self._world.reach("an entry had more to expire than it may")
        added = sum(len(draft.channels) for draft in command.messages) if isinstance(command, Publish) else 1
        self._world.work += added + max(0, before - self.state.message_count - len(self.state.channels))
        return outcome

    def start_from(self, state: ReplicatedState) -> None:
        self._world.work += self.polls.count
        if self.polls.count:
            self._world.reach("a node continued with another state while it held polls")
        super().start_from(state)
        due = self.state.next_expiry
        if due is not None and due <= self._world.now:
            self._world.reach("a node started from a checkpoint while something in it was due to expire")

    def changes(self, after: int | None = None) -> Changes:
        changes = super().changes(after)
        self._world.work += len(changes.channels) + len(changes.messages)
        return changes
