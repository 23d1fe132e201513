"""Saving the checkpoint: when, and how far the log may then be trimmed."""

from __future__ import annotations

from collections import deque

from twisted.internet.interfaces import IReactorTime

from pushup.broadcast.redis.catch_up import EpochStarter
from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.redis_errors import Incomplete
from pushup.broadcast.redis.replica import Replica

SAVE_SECONDS = 1.0
"""How often the checkpoint is brought up to date while there are new entries."""

SAVE_CHANGES = 2000
"""After this many changed rows it is brought up to date at once: collecting and encoding them takes
about 3 ms, and what one save adds is a small piece for a node that loads."""

LOG_SECONDS = 60.0
"""How long entries stay in the log after the checkpoint contains them. A node that was away for less can read on."""


class Saving:
    """This node's saves of the checkpoint; one node at a time saves for all."""

    def __init__(self, *, replica: Replica, epochs: EpochStarter, clock: IReactorTime) -> None:
        self._replica = replica
        self._epochs = epochs
        self._clock = clock
        self._saves: deque[tuple[float, int]] = deque()  # time and sequence of those in the last LOG_SECONDS

    def forget(self) -> None:
        """This node has started from another checkpoint: its saves say nothing of that one."""
        self._saves.clear()

    def is_due(self, saved: int) -> bool:
        """Whether to bring the checkpoint at this sequence up to date now."""
        if self._replica.cursor.sequence <= saved:
            return False
        last_save = self._saves[-1][0] if self._saves else 0.0
        is_time = self._clock.seconds() >= last_save + SAVE_SECONDS
        return is_time or self._replica.follower.changed_count >= SAVE_CHANGES

    async def save(self, log: RedisLog, saved: int) -> None:
        """Bring the checkpoint at `saved` up to what this node has applied."""
        follower, now = self._replica.follower, self._clock.seconds()
        changes = follower.changes(saved)
        keep_after = 0
        while self._saves and self._saves[0][0] <= now - LOG_SECONDS:
            keep_after = self._saves.popleft()[1]
        self._saves.append((now, changes.head.sequence))
        try:
            await log.save(saved, changes, self._replica.tag.decode(), keep_after=keep_after)
        except Incomplete as error:
            await self.begin_epoch(log, follower.cursor.epoch, str(error), after=self._replica.tag)

    async def begin_epoch(self, log: RedisLog, over: str, reason: str, *, after: bytes = b"") -> None:
        """Give the log up, which is in the epoch `over`, and begin another with this node's rows.

        `after`: as that of `EpochStarter.begin`.
        """
        await self._epochs.begin(log, over, self._replica.cluster, self._replica.follower.state, reason, after=after)
