"""What entries are carried out by: the limits, what they mean for each class of messages, and the version.

The version is that of the state machine. Entries change the limits and the version.
"""

from __future__ import annotations

import math

from pushup.core.errors import VersionTooNew
from pushup.core.limits import ChannelPolicy, Limits

LATEST_VERSION = 2
"""The newest version of the state machine that this release knows (decision 13, with what each version changes)."""

EPHEMERAL = "*"
"""The class of ephemeral messages. No prefix is called this: channels' names do not contain it."""

EPHEMERAL_SECONDS = 5.0
"""How long an ephemeral message is kept: time for a client to poll again."""


class Retention:
    """What holds for the messages of one class, by the present limits.

    A class is named by the prefix of its policy, `""` that of channels without one. `messages`: for each channel;
    `bytes`: for the whole class; `channel_ttl`: of channels that a publication opens.
    """

    def __init__(self, limits: Limits, policy: ChannelPolicy) -> None:
        self.name = policy.prefix
        seconds, messages, ttl = policy.retention_seconds, policy.retention_messages, policy.channel_ttl_seconds
        self.seconds = limits.retention_seconds if seconds is None else seconds
        self.messages = limits.retention_messages if messages is None else messages
        self.bytes = math.inf if policy.retention_bytes is None else policy.retention_bytes
        if ttl is None:
            ttl = limits.channel_ttl_seconds if seconds is None else max(limits.channel_ttl_seconds, seconds)
        self.channel_ttl = ttl
        self.share = policy.share
        self.presence = policy.presence
        self.occupancy_webhooks = policy.occupancy_webhooks
        self.is_current = True
        """Until the limits change."""


class Rules:
    """The current limits and version, shared by all parts of one replicated state."""

    __slots__ = ("_retentions", "has_presence", "limits", "version")

    def __init__(self, limits: Limits) -> None:
        self.version = LATEST_VERSION
        self._retentions: list[Retention] = []
        self.set_limits(limits)

    def set_limits(self, limits: Limits) -> None:
        """Continue with these limits."""
        for retention in self._retentions:
            retention.is_current = False
        self.limits = limits
        ephemeral = ChannelPolicy(
            prefix=EPHEMERAL, retention_seconds=EPHEMERAL_SECONDS, retention_bytes=limits.ephemeral_bytes
        )
        by_length = sorted(limits.channels, key=lambda policy: len(policy.prefix), reverse=True)
        # The first whose name a channel's name begins with is that of the channel.
        self._retentions = [Retention(limits, policy) for policy in (ephemeral, *by_length, ChannelPolicy(prefix=""))]
        self.has_presence = any(retention.presence for retention in self._retentions)
        """Whether any channel has members."""

    @property
    def longest_seconds(self) -> float:
        """How long any message is kept at most. Version 1 knows nothing of policies here."""
        return max([each.seconds for each in self._retentions]) if self.version > 1 else self.limits.retention_seconds

    def retention(self, name: str) -> Retention:
        """That of the channel, or of the class, with this name. O(policies)."""
        return next(retention for retention in self._retentions if name.startswith(retention.name))

    def require(self, version: int) -> None:
        """Raises: VersionTooNew if this release does not know this version, or the present one."""
        needed = version if version > self.version else self.version
        if needed > LATEST_VERSION:
            text = f"the order has version {needed} of the state machine, and this PushUp knows {LATEST_VERSION}"
            raise VersionTooNew(text, needed=needed, version=LATEST_VERSION)
