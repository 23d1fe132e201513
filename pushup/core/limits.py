"""The bounds of a message queue."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Retention (how long, how many, how much) and the sizes that follow from it.

    All nodes of a cluster must be given the same: they decide what the replicated state is.
    """

    retention_seconds: float = 300.0
    """A message is dropped when it is older."""
    retention_messages: int = 1000
    """A channel keeps at most so many messages."""
    retention_bytes: int = 256 * 1024 * 1024
    """All messages of the node together, each with `MESSAGE_OVERHEAD_BYTES`; the oldest goes first."""
    channel_ttl_seconds: float = 3600.0
    """A channel closes when nothing was published on it for so long (PushUp §3.3)."""
    channels_limit: int = 200_000
    """So many channels live at a time."""
    keys_limit: int = 100_000
    """So many idempotency keys are remembered; the oldest goes first."""
    answer_limit_bytes: int = 256 * 1024
    """An answer ends before the message that would make it larger, names and all; one message always fits."""
    strict_channels: bool = False
    """Channels must be created before they are published to or polled."""


class HoldLimits(Struct, frozen=True, kw_only=True):
    """What the held polls of one node may take. Beyond a limit, a poll that cannot be answered at once is refused."""

    awaited_channels_limit: int = 200_000
    """Channels that do not exist, while polls wait for somebody to publish on them."""
    held_limit_bytes: int = 512 * 1024 * 1024
    """All held polls together: the channel names of each, and 350 bytes for each of these channels."""
