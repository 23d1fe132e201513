"""How a node uses Redis: its settings."""

from __future__ import annotations

from msgspec import Struct


class RedisLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node uses Redis."""

    redis_timeout_seconds: float = 5.0
    """Maximum time without progress: no reply, and no further part of a large reply or request. Then the connection is
    closed. A publisher gets 503 after this time, and may not know the outcome."""
    redis_durable: bool = False
    """Declares that Redis is one server without replicas that syncs each write, so that a restart of it loses
    nothing. A node that sees a replica or a Sentinel ignores it for good."""
    redis_prefix: str = "pushup"
    """Prefix of all keys in Redis. Clusters with different prefixes are independent."""
