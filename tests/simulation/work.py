"""How much a turn does, in units of work that do not depend on the machine: what an entry touches.

A unit is about 10 us: one message put on one channel, one message or channel expired, restored or encoded, one poll looked
at. The real time of each is in docs/performance.md; `python -m loadtest stalls` measures the turns of a real server.
"""

from __future__ import annotations

from typing import Any

from pushup.broadcast import Broadcast
from pushup.core.commands import Entry, Expire, Outcome, Publish
from pushup.core.snapshot import Changes, Snapshot
from tests.simulation.world import World


def counted(broadcast: Broadcast, world: World) -> Any:
    """The broadcast, with a follower in between that counts."""
    start = broadcast.start

    def start_counting(follower: Any) -> None:
        start(_Counted(follower, world))

    broadcast.start = start_counting  # type: ignore[method-assign]
    return broadcast


class _Counted:
    """A follower that counts what it is asked to do."""

    def __init__(self, follower: Any, world: World) -> None:
        self._follower = follower
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._follower, name)

    def apply(self, entry: Entry) -> Outcome:
        node, command = self._follower, entry.command
        before = node.state.message_count + len(node.state.channels)
        outcome: Outcome = node.apply(entry)
        due = node.state.next_expiry
        if isinstance(command, Expire) and due is not None and due <= entry.time:
            self._world.reach("an entry had more to expire than it may")
        added = sum(len(d.channels) for d in command.messages) if isinstance(command, Publish) else 1
        self._world.work += added + max(0, before - node.state.message_count - len(node.state.channels))
        return outcome

    def start_from(self, snapshot: Snapshot) -> None:
        self._world.work += len(snapshot.channels) + len(snapshot.messages) + self._follower.polls.count
        self._follower.start_from(snapshot)

    def snapshot(self) -> Snapshot:
        snapshot: Snapshot = self._follower.snapshot()
        self._world.work += len(snapshot.channels) + len(snapshot.messages)
        return snapshot

    def changes(self, after: int | None = None) -> Changes:
        changes: Changes = self._follower.changes(after)
        self._world.work += len(changes.channels) + len(changes.messages)
        return changes
