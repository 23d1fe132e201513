"""What one node does for all: of those that can read the log, the one with the lowest id.

It saves the checkpoint, which also says how far the log may be trimmed. It changes the version of the state machine, or
the limits, once every living node has the new ones. And it gives the log up if no node can read its next entry.
"""

from __future__ import annotations

from collections import deque

from msgspec import json
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast.redis.catch_up import EpochStarter
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.broadcast.redis.records import NodeReport, Report
from pushup.broadcast.redis.redis_errors import Incomplete
from pushup.broadcast.redis.replica import Diverged, Replica
from pushup.core.commands import Configure, Upgrade
from pushup.core.cursor import Cursor
from pushup.core.limits import Limits
from pushup.core.snapshot import encode

SAVE_SECONDS = 1.0
"""How often the checkpoint is brought up to date while there are new entries."""

SAVE_CHANGES = 2000
"""After this many changed rows it is brought up to date at once: collecting and encoding them takes
about 3 ms, and what one save adds is a small piece for a node that loads."""

LOG_SECONDS = 60.0
"""How long entries stay in the log after the checkpoint contains them. A node that was away for less can read on."""

SWEEP_SECONDS = 30.0
"""How long to wait if a save has left bytes of what was erased in the log."""

SETTLED_SECONDS = LEASE_SECONDS
"""How long the nodes must have wanted the same before a change that needs all of them is made."""

STUCK_SECONDS = 10.0
"""How long all nodes must have been unable to read an entry before the log is given up."""

_log = Logger()


class CheckpointSaver:
    """Saves the checkpoint from this node's state; one node at a time saves for all."""

    def __init__(self, *, replica: Replica, epochs: EpochStarter, clock: IReactorTime) -> None:
        self._replica = replica
        self._epochs = epochs
        self._clock = clock
        # Time and sequence of all tries in the last LOG_SECONDS, also of refused ones: what a later save contains may
        # be trimmed LOG_SECONDS after the try.
        self._saves: deque[tuple[float, int]] = deque()
        self._swept = Cursor("", 0)  # in this epoch, nothing of what was erased up to here is left in the log
        self._sweep_at = 0.0

    def forget(self) -> None:
        """This node has started from another checkpoint: its saves say nothing of that one."""
        self._saves.clear()
        self._swept = Cursor("", 0)

    def is_due(self, saved: int) -> bool:
        """Whether to bring the checkpoint at this sequence up to date now."""
        applied = self._replica.cursor.sequence
        if applied <= saved:
            return applied == saved and self._is_sweep_due(saved)
        last_save = self._saves[-1][0] if self._saves else 0.0
        is_time = self._clock.seconds() >= last_save + SAVE_SECONDS
        return is_time or self._replica.follower.changed_count >= SAVE_CHANGES

    def _is_sweep_due(self, saved: int) -> bool:
        """Whether to save although nothing is new: the log still contains what was erased."""
        if self._replica.follower.state.erased_sequence <= self._swept_up_to():
            return False
        now = self._clock.seconds()
        if not self._saves:
            self._saves.append((now, saved))  # by another node, or before a restart
        return self._saves[0][0] <= now - LOG_SECONDS

    def _swept_up_to(self) -> int:
        """0 in another epoch: the Redis that came back may have the log as it was before it was swept."""
        return self._swept.sequence if self._swept.epoch == self._replica.cursor.epoch else 0

    async def save(self, log: RedisLog, saved: int) -> None:
        """Bring the checkpoint at `saved` up to what this node has applied."""
        follower, now = self._replica.follower, self._clock.seconds()
        changes = follower.changes(saved)
        keep_after = 0
        while self._saves and self._saves[0][0] <= now - LOG_SECONDS:
            keep_after = self._saves.popleft()[1]
        self._saves.append((now, changes.head.sequence))
        erased = changes.head.erased_sequence
        sweeps = self._swept_up_to() < erased <= keep_after and now >= self._sweep_at
        if sweeps:
            self._sweep_at = now + SWEEP_SECONDS
        tag = self._replica.tag.decode()
        try:
            if await log.save(saved, changes, tag, keep_after=keep_after, sweeps=sweeps) and sweeps:
                self._swept = Cursor(changes.head.epoch, erased)
        except Incomplete as error:
            await self.begin_epoch(log, follower.cursor.epoch, str(error), after=self._replica.tag)

    async def begin_epoch(self, log: RedisLog, over: str, reason: str, *, after: bytes = b"") -> None:
        """Give the log up, which is in the epoch `over`, and begin another with this node's rows.

        `after`: as that of `EpochStarter.begin`.
        """
        await self._epochs.begin(log, over, self._replica.cluster, self._replica.follower.state, reason, after=after)


class FirstNode:
    """The duties of a node while it is the first."""

    def __init__(self, *, node_id: str, replica: Replica, saver: CheckpointSaver, clock: IReactorTime) -> None:
        self._node_id = node_id
        self._replica = replica
        self._saver = saver
        self._settled = _Lasting(clock)
        self._stuck = _Lasting(clock)

    async def act(self, log: RedisLog, report: Report, nodes: list[NodeReport]) -> None:
        """Do what is due after a report. Raises: Diverged."""
        if report.tail.epoch == self._replica.cursor.epoch and self._saver.is_due(report.saved):
            if report.saved < self._replica.follower.changes_known_after:
                # Redis has lost the last save. What has changed since the one before is not known here any more.
                self._replica.forget()
                raise Diverged("the checkpoint in Redis is older than the changes that this node remembers")
            if not report.is_loading:
                await self._saver.save(log, report.saved)
        await self._agree(log, report, nodes)
        stuck = {node.stuck_at for node in nodes}
        if self._stuck.lasts(stuck.pop() if len(stuck) == 1 and report.complete else "") >= STUCK_SECONDS:
            reason = f"no node can read the entry {self._replica.stuck_at}"
            await self._saver.begin_epoch(log, report.tail.epoch, reason)

    async def _agree(self, log: RedisLog, report: Report, nodes: list[NodeReport]) -> None:
        """Change the version of the state machine, or the limits, once every living node has the new ones."""
        follower = self._replica.follower
        version = min(node.latest_version for node in nodes)
        limits = nodes[0].limits
        command: Upgrade | Configure | None = None
        if not report.complete or report.tail.tag != self._replica.tag:
            return
        if version > follower.state.version:
            command = Upgrade(version)
        elif bytes(limits) != encode(follower.state.limits) and all(node.limits == limits for node in nodes):
            command = Configure(json.decode(limits, type=Limits))
        if self._settled.lasts("" if command is None else repr(command)) < SETTLED_SECONDS or command is None:
            return
        fields = {"version": str(version), "run": log.run} if isinstance(command, Upgrade) else {}
        if await log.switch(self._replica.tag, f"{self._node_id}.{version}.{follower.cursor}", command, **fields):
            if isinstance(command, Upgrade):
                what = "version {version} of the state machine"
            else:
                what = "the limits of their settings"
            _log.info("all nodes are ready: from here on the log uses " + what, version=version)


class _Lasting:
    """How long something has stayed as it is."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._what, self._since = "", 0.0

    def lasts(self, what: str) -> float:
        """For how many seconds it has been this; 0 for an empty text."""
        now = self._clock.seconds()
        if what != self._what:
            self._what, self._since = what, now
        return now - self._since if what else 0.0
