"""The bounds of what a node does with Redis."""

from __future__ import annotations

from msgspec import Struct


class RedisLimits(Struct, frozen=True, kw_only=True):
    """How a node uses Redis."""

    redis_timeout_seconds: float = 5.0
    """How long Redis may make no progress: no reply, and no more of a large reply or request. Then the connection is
    closed. A publisher waits no longer than this for its answer; then it gets 503, and may not know the outcome."""
    redis_prefix: str = "pushup"
    """What all keys in Redis begin with: clusters with different ones do not know each other."""
