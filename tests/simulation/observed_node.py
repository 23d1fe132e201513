"""A node that counts what its turns cost, and notes the dangerous states that it gets into.

The cost is in units of work, which do not depend on the machine. A unit is about 10 us: one message put on one channel,
one message or channel expired, restored or encoded, one poll looked at. `python -m loadtest stalls` measures the turns
of a real server (docs/lab/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pushup.broadcast import Broadcast, Follower
from pushup.core.answer import Answer
from pushup.core.commands import Entry, Expire, Outcome, Publish
from pushup.core.cursor import Cursor
from pushup.core.poll import Poll
from pushup.core.snapshot import Changes
from pushup.core.state import ReplicatedState
from pushup.core.subscription import Holder, Subscription
from pushup.node.node import Node
from tests.simulation.world import World

BUG = "a bug that only this node has"
"""What the error says that an observed node is told to make; any other is one of PushUp's own."""


class ObservedNode:
    """Passes everything on to a node, and tells the world of it.

    Around the node, not a subclass: a compiled class can have none that is interpreted.
    """

    def __init__(
        self,
        world: World,
        name: str,
        node: Node[Holder],
        on_entry: Callable[[Entry, Outcome], None],
        on_state: Callable[[str, int], None],
    ) -> None:
        self._world = world
        self._on_entry = on_entry
        self._on_state = on_state
        self._name = name
        self._node = node
        self.before_entry: Callable[[Node[Holder], Entry], Callable[[], None] | None] = lambda node, entry: None
        """Called before each entry; what it returns is called after it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._node.addresses

    @addresses.setter
    def addresses(self, addresses: tuple[str, ...]) -> None:
        self._node.addresses = addresses

    def poll(self, poll: Poll, holder: Holder, at_most: float = math.inf) -> Answer | Subscription[Holder]:
        cursor, here = poll.cursor, self._node.cursor
        if isinstance(cursor, Cursor) and here.epoch:
            if cursor.epoch != here.epoch:
                self._world.reach("a poll's cursor was of an epoch that its node does not have")
            elif cursor.sequence > here.sequence:
                self._world.reach("a poll's cursor was ahead of its node")
        return self._node.poll(poll, holder, at_most)

    def apply(self, entry: Entry) -> Outcome:
        command, state = entry.command, self._node.state
        if isinstance(command, Publish) and f"poison for {self._name} ".encode() in bytes(command.messages[0].data):
            raise RuntimeError(BUG)
        before = state.message_count + len(state.channels)
        after = self.before_entry(self._node, entry)
        outcome = self._node.apply(entry)
        if after is not None:
            after()
        due = state.next_expiry
        if isinstance(command, Expire) and due is not None and due <= entry.time:
            self._world.reach("an entry had more to expire than it may")
        added = sum(len(draft.channels) for draft in command.messages) if isinstance(command, Publish) else 1
        self._world.work += added + max(0, before - state.message_count - len(state.channels))
        self._on_entry(entry, outcome)
        return outcome

    def start_from(self, state: ReplicatedState) -> None:
        self._on_state(state.cursor.epoch, state.cursor.sequence)
        held = self._node.polls.count
        self._world.work += held
        if held:
            self._world.reach("a node continued with another state while it held polls")
        self._node.start_from(state)
        due = state.next_expiry
        if due is not None and due <= self._world.now:
            self._world.reach("a node started from a checkpoint while something in it was due to expire")

    def changes(self, after: int | None = None) -> Changes:
        changes = self._node.changes(after)
        self._world.work += len(changes.rows)
        return changes


class ObservedBroadcast:
    """Passes everything on to a broadcast, and has it followed by an observed node."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self.follower: Follower
        """Set before the node starts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broadcast, name)

    def start(self, follower: Follower) -> None:
        self._broadcast.start(self.follower)
