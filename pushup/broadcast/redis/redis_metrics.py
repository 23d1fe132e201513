"""What a node sees of Redis, for `/metrics`: which server it is, how fast it replies, how far the log is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from twisted.internet.interfaces import IReactorTime

from pushup.broadcast.redis.log import RedisLog
from pushup.broadcast.redis.records import Tail, info_of
from pushup.broadcast.redis.redis_connection import Reply
from pushup.core.cursor import Cursor
from pushup.metrics import Histogram, Metric, counter, gauge

INFO_SECONDS = 10.0
"""How often Redis is asked about its role and its memory."""

_MEMORY = {
    "used_memory": ("redis_used_memory_bytes", "Memory in use by Redis"),
    "maxmemory": ("redis_maxmemory_bytes", "The limit of that memory; 0: none"),
}


class RedisMetrics:
    """The session and the heartbeat tell it what they see anyway."""

    def __init__(self, clock: IReactorTime, applied: Callable[[], Cursor]) -> None:
        """`applied`: the last entry that this node has applied."""
        self._clock = clock
        self._applied = applied
        self._times_followed = 0
        self._round_trip = Histogram()
        self._server = ""
        self._info: dict[str, str] = {}
        self._info_at = -math.inf
        self._end = self._goal = 0  # where the log ended at the last report, and at an earlier one, not reached then
        self._goal_at = 0.0

    def follows(self, log: RedisLog) -> None:
        """The node has caught up, and follows the log through this connection."""
        self._times_followed += 1
        self._server = log.connection.server
        self._info, self._info_at = log.info, self._clock.seconds()

    def reported(self, log: RedisLog, round_trip: float, end: Tail) -> None:
        """A report, answered after `round_trip` seconds, has found the end of the log."""
        now = self._clock.seconds()
        self._round_trip.observe(round_trip)
        self._end = end.sequence
        if self._applied().sequence >= self._goal or self._end < self._goal:
            self._goal, self._goal_at = self._end, now
        if now - self._info_at >= INFO_SECONDS:
            self._info_at = now
            log.connection.send(("INFO",), self._told)

    def _told(self, reply: Reply) -> None:
        if isinstance(reply, bytes):
            self._info = info_of(reply)

    def metrics(self, *, is_up: bool) -> Iterator[Metric]:
        """`is_up`: whether the log can be followed now."""
        applied = self._applied().sequence
        late = 0.0 if applied >= self._goal else self._clock.seconds() - self._goal_at
        yield gauge("redis_up", "1 while this node follows the log in Redis, else 0", is_up)
        yield gauge("log_lag_entries", "Entries in Redis that this node has not applied", max(0, self._end - applied))
        yield gauge("log_lag_seconds", "For how long at least an entry in Redis has not been applied here", late)
        times = max(0, self._times_followed - 1)
        yield counter("redis_reconnects", "Times that this node lost the log in Redis and found it again", times)
        yield self._round_trip.metric("redis_round_trip_seconds", "Time until Redis replied to a report of this node")
        labels = ("address", "role", "version")
        info = GaugeMetricFamily("pushup_redis_info", "The Redis in use; always 1", labels=labels)
        if self._info:
            info.add_metric((self._server, self._info.get("role", ""), self._info.get("redis_version", "")), 1)
        yield info
        for field, (name, text) in _MEMORY.items():
            if field in self._info:
                yield gauge(name, text, float(self._info[field]))
