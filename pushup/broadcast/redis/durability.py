"""Whether a restart of Redis loses nothing: the operator declares it, and a replica disproves it for good.

A replica that is started as a primary looks like the server that was there before: every key is replicated, and the
id of a run is new with each start. So no node can find out by itself whether the storage that came back is the one to
which its entries were synced.
"""

from __future__ import annotations

from twisted.logger import Logger

from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import Tail

_log = Logger()


class Durability:
    """What one node knows of it, through all its connections."""

    def __init__(self, *, declared: bool) -> None:
        """`declared`: the setting `redis_durable`."""
        self._declared = declared
        self.is_disproved = False
        """Whether there was ever a replica, as far as this node knows."""

    def note(self, log: RedisLog, end: Tail) -> None:
        """This is what the connection shows, and the end of the log that was read through it."""
        reason = log.replica_seen or ("a node has seen a replica before" if end.was_replicated else "")
        if reason and not self.is_disproved:
            self.is_disproved = True
            if self._declared:
                _log.warn(
                    "redis_durable is ignored: {reason}, which may come back in place of the primary without its last "
                    "writes. After a restart of Redis every node has to vouch for the log; remove the setting",
                    reason=reason,
                )

    def holds(self, log: RedisLog) -> bool:
        """Whether what Redis has acknowledged survives its restart."""
        return self._declared and log.syncs_each_write and not self.is_disproved
