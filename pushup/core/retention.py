"""Retention: how long, and how much, messages are kept, which may differ between channels; and who published them."""

from __future__ import annotations

import math

from pushup.core.limits import ChannelPolicy, Limits

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
        self.is_current = True
        """Until the limits change."""


def retentions(limits: Limits) -> list[Retention]:
    """Those of all classes. The first whose name a channel's name begins with is that of the channel."""
    ephemeral = ChannelPolicy(
        prefix=EPHEMERAL, retention_seconds=EPHEMERAL_SECONDS, retention_bytes=limits.ephemeral_bytes
    )
    by_length = sorted(limits.channels, key=_prefix_length, reverse=True)
    return [Retention(limits, policy) for policy in (ephemeral, *by_length, ChannelPolicy(prefix=""))]


class RetentionClass:
    """All messages of one class: the shelves of those who have published them."""

    def __init__(self, name: str, retention: Retention) -> None:
        """`retention`: that of another class if policies have this one no longer."""
        self.name = name
        self.is_ephemeral = name == EPHEMERAL
        self.retention = retention
        self.shelves: dict[str, Shelf] = {}
        """By owner; none is empty."""
        self.bytes = 0

    @property
    def largest(self) -> Shelf:
        """The shelf that takes most; the same in every replica."""
        shelves = list(self.shelves.values())
        return shelves[0] if len(shelves) == 1 else max(shelves, key=_bytes_and_owner)

    @property
    def load(self) -> tuple[float, str]:
        """A sort key: what its messages take for its share."""
        return self.bytes / self.retention.share, self.name


class Shelf:
    """The messages of one class that one owner has published, oldest first: a list that the messages themselves link.

    `owner`: the name of the key that they were published with; empty if it has none.
    """

    def __init__(self, retention_class: RetentionClass, owner: str) -> None:
        self.retention_class = retention_class
        self.owner = owner
        self.first = self.last = 0
        """The sequences of its messages at both ends; 0 if it is empty."""
        self.bytes = 0


def _prefix_length(policy: ChannelPolicy) -> int:
    return len(policy.prefix)


def _bytes_and_owner(shelf: Shelf) -> tuple[int, str]:
    return shelf.bytes, shelf.owner
