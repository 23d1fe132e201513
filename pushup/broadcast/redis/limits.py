"""The bounds of what a node does with Redis."""

from __future__ import annotations

from msgspec import Struct


class RedisLimits(Struct, frozen=True, kw_only=True):
    """How a node uses Redis."""

    redis_timeout_seconds: float = 5.0
    """How long Redis may go without replying, or without sending or taking more of what is large; then the connection
    is given up, and publishers are told it is not known. A publisher is told so after as long in any case."""
    redis_prefix: str = "pushup"
    """What all keys in Redis begin with: clusters with different ones do not know each other."""
