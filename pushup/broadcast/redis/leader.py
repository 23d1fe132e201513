"""What one node does for all: of those that can read the log, the one with the lowest id.

It saves the checkpoint. It changes the version of the state machine, or the limits, once every living node has the new
ones. And it gives the log up if no node can read its next entry.
"""

from __future__ import annotations

from msgspec import json
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from pushup.broadcast.redis.checkpoint_saver import Saving
from pushup.broadcast.redis.log import LEASE_SECONDS, RedisLog
from pushup.broadcast.redis.records import NodeReport, Report
from pushup.broadcast.redis.replica import Diverged, Replica
from pushup.core.commands import Configure, Upgrade
from pushup.core.limits import Limits
from pushup.core.snapshot import encode

SETTLED_SECONDS = LEASE_SECONDS
"""How long the nodes must have wanted the same before a change that needs all of them is made."""

STUCK_SECONDS = 10.0
"""How long all nodes must have been unable to read an entry before the log is given up."""

_log = Logger()


class FirstNode:
    """The duties of a node while it is the first."""

    def __init__(self, *, node_id: str, replica: Replica, saving: Saving, clock: IReactorTime) -> None:
        self._node_id = node_id
        self._replica = replica
        self._saving = saving
        self._settled = _Lasting(clock)
        self._stuck = _Lasting(clock)

    async def act(self, log: RedisLog, report: Report, nodes: list[NodeReport]) -> None:
        """Do what is due after a report. Raises: Diverged."""
        if report.tail.epoch == self._replica.cursor.epoch and self._saving.is_due(report.saved):
            if report.saved < self._replica.follower.changes_known_after:
                # Redis has lost the last save. What has changed since the one before is not known here any more.
                self._replica.forget()
                raise Diverged("the checkpoint in Redis is older than the changes that this node remembers")
            await self._saving.save(log, report.saved)
        await self._agree(log, report, nodes)
        stuck = {node.stuck_at for node in nodes}
        if self._stuck.lasts(stuck.pop() if len(stuck) == 1 and report.complete else "") >= STUCK_SECONDS:
            reason = f"no node can read the entry {self._replica.stuck_at}"
            await self._saving.begin_epoch(log, report.tail.epoch, reason)

    async def _agree(self, log: RedisLog, report: Report, nodes: list[NodeReport]) -> None:
        """Change the version of the state machine, or the limits, once every living node has the new ones."""
        follower = self._replica.follower
        version = min(node.latest_version for node in nodes)
        limits = nodes[0].limits
        command: Upgrade | Configure | None = None
        if not report.complete or report.tail.tag != self._replica.tag:
            return
        if version > follower.version:
            command = Upgrade(version)
        elif bytes(limits) != encode(follower.limits) and all(node.limits == limits for node in nodes):
            command = Configure(json.decode(limits, type=Limits))
        if self._settled.lasts("" if command is None else repr(command)) < SETTLED_SECONDS or command is None:
            return
        fields = {"version": str(version), "run": log.run} if isinstance(command, Upgrade) else {}
        if await log.switch(self._replica.tag, f"{self._node_id}.{version}.{follower.cursor}", command, **fields):
            if isinstance(command, Upgrade):
                what = f"version {version} of the state machine"
            else:
                what = "the limits of their settings"
            _log.info("all nodes are ready: from here on the log uses {what}", what=what)


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
